"""What is installed, by which names, and how the two commands set it up."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tomllib
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_is_every_extra_but_tensorrt_and_dev() -> None:
    (everything,) = EXTRAS["all"]
    named = re.fullmatch(r"optcc-compiler\[([\w,]+)\]", everything).group(1).split(",")
    assert set(named) == set(EXTRAS) - {"all", "dev", "tensorrt"}


def test_modelopt_comes_without_its_onnx_extra() -> None:
    assert [r for r in EXTRAS["modelopt"] if r.startswith("nvidia-modelopt[")] == []


@pytest.mark.parametrize("group", ["optcc.passes", "optcc.backends"])
def test_entry_points_are_those_of_the_project_file(group: str) -> None:
    installed = {e.name: e.value for e in entry_points(group=group)}
    declared = PROJECT["entry-points"][group]
    assert {name: installed.get(name) for name in declared} == declared


@pytest.mark.parametrize("group", ["optcc.passes", "optcc.backends"])
def test_entry_points_can_be_loaded(group: str) -> None:
    for entry in entry_points(group=group):
        assert entry.load() is not None


def test_torch_stays_within_the_range_that_has_cpu_builds() -> None:
    wanted = tool("cpu_torch").requirement()
    assert wanted == EXTRAS["torch"][0]
    assert wanted.endswith("<2.14")


@pytest.mark.parametrize(
    ("platform", "version", "cuda"),
    [
        ("linux", "2.13.0", True),
        ("linux", "2.13.0+cu130", True),
        ("linux", "2.13.0+cpu", False),
        ("darwin", "2.13.0", False),
    ],
)
def test_builds_with_cuda_are_recognized(monkeypatch, platform: str, version: str, cuda) -> None:
    module = tool("cpu_torch")
    monkeypatch.setattr(module.sys, "platform", platform)
    assert module.brings_cuda(version) is cuda


@pytest.mark.parametrize(
    ("candidate", "index"), [("2.13.0", True), ("2.13.0+cpu", False), ("", None)]
)
def test_the_cpu_index_is_used_only_where_it_is_needed(monkeypatch, candidate, index) -> None:
    module = tool("cpu_torch")
    calls: list[tuple[str, ...]] = []

    def pip(*arguments: str) -> str:
        calls.append(arguments)
        found = [{"metadata": {"version": candidate}}] if candidate else []
        return json.dumps({"install": found})

    monkeypatch.setattr(module, "pip", pip)
    monkeypatch.setattr(module, "version", lambda name: "2.13.0")
    monkeypatch.setattr(module.sys, "platform", "linux")
    module.main()
    installs = [c for c in calls if "--dry-run" not in c]
    assert [("--index-url" in c) for c in installs] == ([] if index is None else [index])


def test_ci_runs_what_developers_run() -> None:
    assert (ROOT / ".ci/run").read_text("utf-8").splitlines()[-1] == "exec make test"


def dry_run(folder: Path, target: str) -> str:
    done = subprocess.run(
        ["make", "-n", target], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    return tmp_path


def test_make_installs_once_for_each_content_of_the_project_file(checkout: Path) -> None:
    assert "pip install" in dry_run(checkout, "test")
    pretend_installed(checkout, dry_run(checkout, "test"))
    assert "pip install" not in dry_run(checkout, "test")
    assert "pip install" not in dry_run(checkout, "demo")
    (checkout / "pyproject.toml").touch()
    assert "pip install" not in dry_run(checkout, "test")
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    assert "pip install" in dry_run(checkout, "test")


def pretend_installed(checkout: Path, plan: str) -> None:
    binaries = checkout / ".venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "python").touch()
    stamps = re.findall(r"^touch (.+)$", plan, re.M)
    assert len(stamps) == 1
    for stamp in stamps[0].split():
        (checkout / stamp).touch()


def test_the_example_s_data_are_those_of_the_manifest() -> None:
    folder = ROOT / "calibration_data"
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert {p.name for p in folder.glob("*.npz")} == set(manifest)
    for name, entry in manifest.items():
        assert sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["source"]
        assert entry["licence"]


def test_the_example_is_small() -> None:
    assert (ROOT / "examples/digits/digits.onnx").stat().st_size < 500_000
