"""A pass of another distribution is listed, planned, verified and explained like ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optcc.graph.io import write_model
from tests.e2e.conftest import ROOT, optcc
from tests.models.small import chain

NAME = "example.double-negation"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install the example distribution into a folder of its own; return PYTHONPATH with it."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [*command, "--target", str(target), str(ROOT / "examples/third_party_pass")],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    write_model(chain("Relu", "Neg", "Neg", "Neg"), path)
    return path


def test_it_is_listed_only_where_it_is_installed(installed: str, tmp_path: Path) -> None:
    assert NAME in optcc(["passes"], tmp_path, PYTHONPATH=installed).stdout
    assert NAME not in optcc(["passes"], tmp_path).stdout


def test_it_is_planned(installed: str, model: Path) -> None:
    arguments = ["passes", "--plan", model, "--precision", "fp32", "--passes", f"+{NAME}"]
    shown = optcc(arguments, model.parent, PYTHONPATH=installed).stdout
    assert f"{NAME}" in shown
    assert "(optcc-double-negation)" in shown


def test_it_runs_verified_and_explained(installed: str, model: Path) -> None:
    arguments = ["compile", model, "--precision", "fp32", "--backend", "onnxruntime"]
    done = optcc([*arguments, "--passes", f"+{NAME}", "--json"], model.parent, PYTHONPATH=installed)
    assert done.returncode == 0, done.stderr
    row = next(p for p in json.loads(done.stdout)["passes"] if p["name"] == NAME)
    assert row["rewrites"] == 1
    assert row["check"]["verdict"] == "pass"
    assert row["check"]["inconclusive"] == 0
    trace = (model.parent / "model.optcc" / "trace.jsonl").read_text()
    events = [json.loads(line) for line in trace.splitlines()]
    own = [e for e in events if e.get("name") == NAME and e["event"] == "rewrite"]
    assert [e["what"] for e in own] == ["Neg + Neg"]


def test_without_it_the_name_is_unknown(model: Path) -> None:
    done = optcc(["compile", model, "--passes", f"+{NAME}"], model.parent)
    assert done.returncode == 2
    assert f"there is no pass '{NAME}'" in done.stderr
