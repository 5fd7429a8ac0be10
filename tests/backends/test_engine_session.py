"""Running a loaded engine, on stand-ins for the driver and the runtime."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from optcc.backends.cuda_driver import CudaError, open_driver
from optcc.backends.engine_session import EngineError, EngineSession
from optcc.backends.engine_timing import time_engine
from optcc.backends.trt_adapter import TrtModule
from optcc.backends.worker_channel import Channel
from optcc.passkit.contract import Feed
from tests.backends.fake_device import DataType, FakeCuda, FakeModule


@contextmanager
def session(
    cuda: FakeCuda | None = None, module: FakeModule | None = None, engine: bytes = b"an engine"
) -> Iterator[EngineSession]:
    with open_driver(cuda or FakeCuda()) as driver:
        trt = TrtModule(module or FakeModule())
        yield EngineSession(trt, engine, driver, Channel(io.StringIO()))


def feed(rows: int, dtype: type = np.float32) -> Feed:
    return {"x": np.arange(rows * 3, dtype=dtype).reshape(rows, 3)}


def test_outputs_of_the_device_and_of_the_host() -> None:
    with session() as one:
        for rows in (1, 4, 2):
            outputs = one.run(feed(rows))
            assert list(outputs) == ["y", "n"]
            assert np.array_equal(outputs["y"], 2 * feed(rows)["x"] + 1)
            assert (outputs["n"].shape, int(outputs["n"])) == ((), rows)


def test_values_that_do_not_lie_in_a_row() -> None:
    with session() as one:
        x = feed(4)["x"].reshape(3, 4).T
        assert np.array_equal(one.run({"x": x})["y"], 2 * x + 1)


def test_memory_is_given_back() -> None:
    cuda = FakeCuda()
    with session(cuda) as one:
        one.run(feed(2))
        with pytest.raises(EngineError):
            one.run(feed(5))
        assert cuda.memory == {}


def test_memory_that_does_not_suffice_is_given_back() -> None:
    cuda = FakeCuda(memory=2 * 12 + 1)
    with session(cuda) as one:
        with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            one.run(feed(2))
        assert cuda.memory == {}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "there are no values for input 'x'"),
        (feed(1, np.float64), "input 'x' is float64, the engine takes float32"),
        (feed(5), r"not built for input 'x' of shape \(5, 3\): not in the profile"),
    ],
)
def test_what_does_not_fit_is_named(given: Feed, reason: str) -> None:
    with session() as one, pytest.raises(EngineError, match=reason):
        one.run(given)


def test_an_engine_that_cannot_be_loaded() -> None:
    with pytest.raises(EngineError, match="cannot be loaded: bad magic"), session(engine=b"?"):
        pass


def test_a_type_without_arrays() -> None:
    module = FakeModule(kind=DataType.FP8)
    with pytest.raises(EngineError, match="tensor 'x' has type fp8"), session(module=module):
        pass


def test_a_shape_that_only_a_run_tells() -> None:
    with (
        session(module=FakeModule(rows=-1)) as one,
        pytest.raises(EngineError, match="the shape of output 'y' depends on the values"),
    ):
        one.run(feed(1))


def test_a_run_is_timed_to_its_end() -> None:
    """The clock goes on while the stream is waited for, by 1 ms, and between the runs."""
    cuda = FakeCuda()

    def clock() -> float:
        return cuda.syncs * 1e-3

    with open_driver(cuda) as driver:
        trt = TrtModule(FakeModule())
        one = EngineSession(trt, b"an engine", driver, Channel(io.StringIO()))
        times = time_engine(one, driver, [feed(1), feed(3)], 0.2, clock)
    assert (times.p50_ms, times.p90_ms, times.p99_ms) == pytest.approx((1, 1, 1))
    assert times.warmup_runs >= 10
    assert 150 <= times.runs <= 180
    assert cuda.memory == {}


def test_a_slow_engine_gets_few_runs() -> None:
    cuda = FakeCuda()
    with open_driver(cuda) as driver:
        trt = TrtModule(FakeModule())
        one = EngineSession(trt, b"an engine", driver, Channel(io.StringIO()))
        times = time_engine(one, driver, [feed(1)], 0.1, lambda: float(cuda.syncs))
    assert (times.warmup_runs, times.runs) == (10, 32)
    assert times.p50_ms == pytest.approx(1000)
