"""Engines in the report, with a stand-in for the device that runs `model.onnx`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optcc.backends.device import CudaDevice
from optcc.backends.engine_run import EngineRun
from optcc.calibrate.sources import Batch
from optcc.config.request import CompileRequest
from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.driver import engine_figures
from optcc.driver.engine_figures import Fitting, fits
from optcc.errors import BackendError
from optcc.passkit.contract import Feed
from optcc.report.schema import Report
from optcc.runtime.session import Session
from tests.backends.build import needs_rtx
from tests.driver.conftest import Notes, compiled

ENGINE = "model.tensorrt_rtx.engine"
Change = Callable[[Feed], Feed]


def as_it_is(outputs: Feed) -> Feed:
    return outputs


def install(monkeypatch: pytest.MonkeyPatch, change: Change = as_it_is) -> list[int]:
    """Put the device in; returns the batch of every feed that is timed."""
    batches: list[int] = []

    def run(
        engine: Path,
        sha256: str,
        backend: str,
        feeds: Iterable[Feed],
        seconds: float,
        *,
        timed: Sequence[Feed] = (),
    ) -> EngineRun:
        session = Session(engine.with_name("model.onnx"))
        batches.extend(len(feed[session.inputs[0]]) for feed in timed)
        outputs = [change(session.run(feed)) for feed in feeds]
        return EngineRun(
            outputs=outputs, p50_ms=0.25, p90_ms=0.5, p99_ms=0.75, runs=900, warmup_runs=90
        )

    monkeypatch.setattr(engine_figures, "run_engine", run)
    monkeypatch.setattr(engine_figures, "can_run", lambda targets: "")
    monkeypatch.setattr(engine_figures, "find_cuda_device", lambda: CudaDevice("Some GPU", "sm89"))
    return batches


@pytest.fixture
def report(
    digits: CompileRequest, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Report]:
    def make() -> Report:
        request = replace(digits, evaluation="eval.npz", backends=("tensorrt_rtx",))
        return compiled(request, notes).report

    return make


@needs_rtx
def test_an_engine_has_its_own_rows_and_gate(
    report: Callable[[], Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = install(monkeypatch)
    made = report()
    accuracy = {row.file: row for row in made.accuracy.artifacts}
    engine, model = accuracy[ENGINE], accuracy["model.onnx"]
    assert (engine.runtime, engine.simulated) == ("tensorrt_rtx", False)
    assert (engine.value, engine.samples) == (model.value, model.samples)
    assert "against model.onnx on the CPU: equal outputs, same class on 100.00 %" in engine.note
    row = next(row for row in made.latency.artifacts if row.file == ENGINE)
    assert (row.device, row.runtime, row.batch) == ("Some GPU (sm89)", "tensorrt_rtx", 1)
    assert (row.optimized.p50_ms, row.optimized.p99_ms, row.runs) == (0.25, 0.75, 900)
    assert (row.original, row.speedup, row.not_measured) == (None, None, "")
    assert set(batches) == {1}
    assert [g.passed for g in made.gates if g.file == ENGINE] == [True]
    assert made.verdict == "pass"


@needs_rtx
def test_an_engine_that_is_wrong_fails_the_gate(
    report: Callable[[], Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, lambda outputs: {n: a[:, ::-1] for n, a in outputs.items()})
    made = report()
    assert made.verdict == "fail"
    assert [g.passed for g in made.gates if g.file == ENGINE] == [False]
    assert all(g.passed for g in made.gates if g.file != ENGINE)


@needs_rtx
def test_an_engine_that_cannot_be_run_is_no_silent_gap(
    report: Callable[[], Report], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(outputs: Feed) -> Feed:
        raise BackendError("cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY")

    install(monkeypatch, refuse)
    made = report()
    row = next(row for row in made.latency.artifacts if row.file == ENGINE)
    assert row.not_measured == "cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY"
    assert any(f"{ENGINE} was built and could not be run" in text for text in made.warnings)
    assert ENGINE not in {row.file for row in made.accuracy.artifacts}


def shapes(least: int, most: int) -> ShapeProfile:
    one = InputShapes(name="x", min=(least, 3), opt=(least, 3), max=(most, 3))
    return ShapeProfile((one,), "--shapes")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 3), True),
        ((4, 3), True),
        ((1, 3), False),
        ((5, 3), False),
        ((2, 4), False),
        ((2,), False),
    ],
)
def test_what_an_engine_was_built_for(shape: tuple[int, ...], expected: bool) -> None:
    assert fits({"x": np.zeros(shape)}, shapes(2, 4)) is expected


def test_samples_of_other_shapes_are_counted() -> None:
    class Three:
        labels = None

        def batches(self) -> Iterator[Batch]:
            for rows in (4, 4, 1):
                yield Batch({"x": np.zeros((rows, 3))}, rows)

    fitting = Fitting(Three(), shapes(2, 4))
    for _ in range(2):
        assert [b.count for b in fitting.batches()] == [4, 4]
        assert fitting.left_out() == "the engine was not built for the shapes of 1 sample more"
    assert len(list(fitting.first())) == 1
