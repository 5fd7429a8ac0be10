"""From a file to outputs and times: the parent's side, with the real child on stand-ins.

What needs a GPU is marked; it skips with the reason.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from optcc.backends import engine_run
from optcc.backends.contract import BuildStatus
from optcc.backends.device import CudaDevice, find_cuda_device
from optcc.backends.engine_run import can_run, run_engine
from optcc.errors import BackendError
from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.runtime.session import Session
from optcc.targets.catalog import default_targets
from tests.backends.build import build, needs_rtx, profile
from tests.models.quantized import small_cnn

SHA256 = hashlib.sha256(b"an engine").hexdigest()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the stand-in takes for an engine."""
    monkeypatch.setattr(engine_run, "_WORKER", "tests.backends.fake_engine_worker")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(engine_run.tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "model.fake.engine"
    path.write_bytes(b"an engine")
    return path


def feeds(*rows: int) -> list[Feed]:
    return [{"x": np.arange(n * 3, dtype=np.float32).reshape(n, 3) + n} for n in rows]


def test_outputs_come_in_order_and_times_with_them(engine: Path) -> None:
    given = feeds(1, 4, 2)
    run = run_engine(engine, SHA256, "fake", iter(given), 0.05, timed=feeds(1))
    assert len(run.outputs) == 3
    for feed, outputs in zip(given, run.outputs, strict=True):
        assert np.array_equal(outputs["y"], 2 * feed["x"] + 1)
        assert int(outputs["n"]) == len(feed["x"])
    assert 0 < run.p50_ms <= run.p90_ms <= run.p99_ms
    assert run.runs >= 20
    assert run.warmup_runs >= 10
    assert run.version == "11.0.fake"
    assert os.listdir(engine.parent) == [engine.name]


def test_the_first_feed_is_timed_when_none_is_named(engine: Path) -> None:
    assert run_engine(engine, SHA256, "fake", feeds(3), 0.01).runs >= 20


def test_another_file_is_never_loaded(engine: Path) -> None:
    engine.write_bytes(b"an engine of someone else")
    with pytest.raises(BackendError, match=r"sha256 is .* it was .* when it was built"):
        run_engine(engine, SHA256, "fake", feeds(1), 0.01)


def test_a_file_that_is_gone(engine: Path) -> None:
    engine.unlink()
    with pytest.raises(BackendError, match="cannot be read: No such file"):
        run_engine(engine, SHA256, "fake", feeds(1), 0.01)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "there is no sample"),
        (feeds(1, 5), r"fake: the engine was not built for input 'x' of shape \(5, 3\)"),
        ([{"x": np.array(["text"])}], "input 'x' holds text"),
        ([*feeds(1), {"z": np.zeros(3)}], r"has inputs \['z'\], the first one has \['x'\]"),
    ],
    ids=["none", "another shape", "text", "another input"],
)
def test_feeds_that_do_not_fit(given: list[Feed], reason: str, engine: Path) -> None:
    with pytest.raises(BackendError, match=reason):
        run_engine(engine, SHA256, "fake", given, 0.01)
    assert os.listdir(engine.parent) == [engine.name]


def test_a_crash_is_an_error(engine: Path) -> None:
    with pytest.raises(BackendError, match=r"the crashing runtime crashed \("):
        run_engine(engine, SHA256, "crashing", feeds(1), 0.01)


def test_a_runtime_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "model.engine"
    path.write_bytes(b"an engine")
    with pytest.raises(BackendError, match="no_such_runtime: No module named"):
        run_engine(path, SHA256, "no_such_runtime", feeds(1), 0.01)


@needs_rtx
@pytest.mark.skipif(find_cuda_device() is not None, reason="there is a CUDA device")
def test_a_real_engine_without_a_device(tmp_path: Path) -> None:
    outcome = build(small_cnn(), tmp_path, shapes=profile(x=(4, 3, 8, 8)))
    assert outcome.file is not None
    feed = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    with pytest.raises(BackendError, match=r"tensorrt_rtx: (the CUDA driver|cuInit|cuDeviceGet)"):
        run_engine(outcome.file, outcome.sha256, "tensorrt_rtx", [feed], 0.01)


def test_the_child_loads_no_graph_library() -> None:
    program = "import sys, optcc.backends.engine_worker; print('onnx_ir' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert said.stdout.strip() == b"False"


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (None, "no device"),
        (CudaDevice("H200", "sm90"), "H200 (sm90) is not among the engine's targets: sm86, sm89"),
        (CudaDevice("RTX 4090", "sm89"), ""),
    ],
)
def test_where_an_engine_can_run(
    device: CudaDevice | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_run, "find_cuda_device", lambda: device)
    assert can_run(("sm86", "sm89")) == reason


@needs_rtx
@pytest.mark.device
def test_a_real_engine_on_a_real_device(tmp_path: Path) -> None:
    """The engine gives what the quantized model gives on the CPU, but for rounding."""
    if reason := can_run(default_targets("tensorrt_rtx")):
        pytest.skip(reason)
    model = small_cnn()
    outcome = build(model, tmp_path, shapes=profile(x=(4, 3, 8, 8)))
    assert outcome.status is BuildStatus.BUILT
    assert outcome.file is not None
    rng = np.random.default_rng(0)
    given: list[Feed] = [
        {"x": rng.standard_normal((n, 3, 8, 8)).astype(np.float32)} for n in (1, 4)
    ]
    run = run_engine(outcome.file, outcome.sha256, "tensorrt_rtx", given, 0.5)
    reference = Session(to_bytes(model))
    for feed, outputs in zip(given, run.outputs, strict=True):
        for name, expected in reference.run(feed).items():
            noise = np.square(outputs[name] - expected).sum()
            assert outputs[name].shape == expected.shape
            assert 10 * np.log10(np.square(expected).sum() / max(noise, 1e-30)) > 30
    assert 0 < run.p50_ms <= run.p99_ms
