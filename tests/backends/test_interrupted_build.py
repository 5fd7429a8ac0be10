"""Ctrl-C, SIGTERM and even SIGKILL during a real build: the child ends and leaves nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from optcc.graph.io import write_model
from tests.backends.build import needs_rtx
from tests.models.quantized import deep_cnn

ROOT = Path(__file__).resolve().parents[2]


def workers(folder: Path) -> list[int]:
    """Ids of the build processes that run in `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve() == folder:
                command = (entry / "cmdline").read_bytes()
                found += [int(entry.name)] if b"trt_worker" in command else []
        except OSError:
            continue
    return found


def wait_until_gone(folder: Path) -> list[int]:
    deadline = time.monotonic() + 10
    while (left := workers(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@needs_rtx
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_child_ends_with_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    write_model(deep_cnn(), tmp_path / "model.onnx")
    script = [sys.executable, "-m", "tests.backends.interrupted_build", str(tmp_path)]
    parent = subprocess.Popen(
        script, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "building\n"
        assert len(workers(tmp_path)) == 1
        parent.send_signal(number)
        assert "done" not in parent.stdout.read()
        assert parent.wait(timeout=10) != 0
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()
    assert wait_until_gone(tmp_path) == []
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
