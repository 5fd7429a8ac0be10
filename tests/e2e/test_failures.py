"""Bad input and bad luck: a short message, the documented code, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from optcc.errors import ExitCode
from tests.e2e.conftest import DIGITS, ROOT, environment, optcc

EXIT_CODE_ROW = re.compile(r"^\| (\d+) \| ([A-Z]+) \|", re.M)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty working folder."""
    return tmp_path


def entries(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def check(done: subprocess.CompletedProcess[str], code: ExitCode, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 4
    for word in words:
        assert word in done.stderr


def model(home: Path, change: Callable[[bytes], bytes]) -> Path:
    path = home / "m.onnx"
    path.write_bytes(change((ROOT / DIGITS).read_bytes()))
    return path


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda b: b"", "empty"),
        (lambda b: b[: len(b) // 2], "m.onnx"),
        (lambda b: b"%PDF-1.7 not a model", "ONNX"),
        (lambda b: b"\x89PNG" + b[4:], "m.onnx"),
    ],
    ids=["empty", "truncated", "other", "damaged"],
)
def test_a_file_that_is_no_model(home: Path, change, word: str) -> None:
    path = model(home, change)
    check(optcc(["compile", path, "--precision", "fp32"], home), ExitCode.MODEL, word)
    assert entries(home) == ["m.onnx"]


def test_a_missing_model(home: Path) -> None:
    check(optcc(["compile", "m.onnx"], home), ExitCode.CONFIG, "m.onnx", "does not exist")
    assert entries(home) == []


def test_int8_without_data_names_the_places_and_both_remedies(home: Path) -> None:
    path = model(home, lambda b: b)
    done = optcc(["compile", path, "--precision", "int8"], home)
    check(done, ExitCode.CONFIG, "m.npz", "--calib PATH", "--calib random")
    assert entries(home) == ["m.onnx"]


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"y": np.zeros((4, 1, 8, 8), np.float32)}, "x"),
        ({"x": np.zeros((4, 1, 7, 7), np.float32)}, "x"),
        ({"x": np.full((4, 1, 8, 8), np.nan, np.float32)}, "NaN"),
    ],
    ids=["name", "shape", "nan"],
)
def test_calibration_data_that_do_not_fit(home: Path, arrays, word: str) -> None:
    path = model(home, lambda b: b)
    np.savez(home / "c.npz", **arrays)
    done = optcc(["compile", path, "--precision", "int8", "--calib", "c.npz"], home)
    check(done, ExitCode.CONFIG, word, "c.npz")
    assert entries(home) == ["c.npz", "m.onnx"]


def test_a_folder_of_somebody_else_is_not_replaced(home: Path) -> None:
    path = model(home, lambda b: b)
    out = home / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    done = optcc(["compile", path, "--precision", "fp32", "-o", out], home)
    assert done.returncode in (ExitCode.CONFIG, ExitCode.WRITE)
    assert "--force" in done.stderr
    assert entries(out) == ["thesis.tex"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(home: Path) -> None:
    path = model(home, lambda b: b)
    closed = home / "closed"
    closed.mkdir(mode=0o500)
    done = optcc(["compile", path, "--precision", "fp32", "-o", closed / "out"], home)
    check(done, ExitCode.WRITE, "closed")


def test_an_unknown_backend(home: Path) -> None:
    path = model(home, lambda b: b)
    done = optcc(["compile", path, "--precision", "fp32", "--backend", "tensort_rtx"], home)
    check(done, ExitCode.CONFIG, "tensort_rtx", "tensorrt_rtx")
    assert entries(home) == ["m.onnx"]


def test_a_failed_gate_leaves_the_report_and_no_model(home: Path) -> None:
    """Labels that the original gets right and the artifact cannot: its classes are swapped."""
    path = model(home, lambda b: b)
    eval_data = np.load(ROOT / "examples/digits/eval.npz")
    np.savez(home / "e.npz", x=eval_data["x"][:200], labels=eval_data["labels"][:200])
    noise = np.random.default_rng(0).normal(0, 1e-3, (32, 1, 8, 8)).astype(np.float32)
    np.savez(home / "c.npz", x=noise)
    line = "compile m.onnx --precision int8 --calib c.npz --eval e.npz --calibrator minmax"
    done = optcc([*line.split(), "--backend", "onnxruntime", "-o", "out"], path.parent)
    assert done.returncode == ExitCode.VERIFICATION, done.stderr
    assert "Traceback" not in done.stderr
    assert entries(home) == ["c.npz", "e.npz", "m.onnx", "out.failed"]
    left = entries(home / "out.failed")
    assert {"report.html", "report.json", "report.md"} <= set(left)
    assert [name for name in left if name.startswith("model.")] == []


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.skipif(find_spec("tensorrt_rtx") is None, reason="interrupts an engine build")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_a_signal_leaves_nothing(home: Path, number: signal.Signals, code: ExitCode) -> None:
    model(home, lambda b: b)
    process = subprocess.Popen(
        [sys.executable, "-m", "optcc", "compile", "m.onnx", "--precision", "fp16", "-o", "out"],
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_build(process, home)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert entries(home) == ["m.onnx"]


def wait_for_build(process: subprocess.Popen[str], home: Path) -> None:
    """Wait until the staging folder holds a model: the build follows."""
    for _ in range(600):
        if any(home.rglob("model.onnx")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no model appeared in the staging folder")


def test_the_documented_codes_are_those_of_the_program() -> None:
    text = (ROOT / "docs/errors/README.md").read_text("utf-8")
    documented = {int(code): name for code, name in EXIT_CODE_ROW.findall(text)}
    assert documented == {int(code): code.name for code in ExitCode}
