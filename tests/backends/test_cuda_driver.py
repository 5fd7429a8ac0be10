"""Calls of the driver, through ctypes, on a stand-in."""

from __future__ import annotations

import numpy as np
import pytest

from optcc.backends import cuda_driver
from optcc.backends.cuda_driver import CudaError, open_driver
from tests.backends.fake_device import STREAM, FakeCuda


def test_what_goes_to_the_device_comes_back() -> None:
    cuda = FakeCuda()
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    back = np.zeros_like(values)
    with open_driver(cuda) as driver:
        assert driver.stream == STREAM
        address = driver.allocate(values.nbytes)
        driver.to_device(address, values)
        driver.to_host(back, address)
        driver.free(address)
    assert np.array_equal(back, values)


def test_everything_is_closed() -> None:
    cuda = FakeCuda()
    with pytest.raises(CudaError), open_driver(cuda) as driver:
        driver.allocate(cuda.left + 1)
    assert (cuda.contexts, cuda.streams) == (0, 0)


def test_an_empty_tensor_has_an_address() -> None:
    with open_driver(FakeCuda()) as driver:
        address = driver.allocate(0)
        driver.to_device(address, np.empty((0, 3), np.float32))
        driver.to_host(np.empty((0, 3), np.float32), address)
        assert address


def test_an_error_is_named() -> None:
    with open_driver(FakeCuda(memory=10)) as driver:
        with pytest.raises(CudaError, match=r"^cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY$"):
            driver.allocate(11)
        with pytest.raises(CudaError, match="cuMemFree_v2 failed: CUDA_ERROR_INVALID_VALUE"):
            driver.free(7)


def test_an_error_without_a_name_is_numbered() -> None:
    cuda = FakeCuda(init=999)
    with pytest.raises(CudaError, match=r"^cuInit failed: error 999$"), open_driver(cuda):
        pass
    assert cuda.contexts == 0


def test_an_old_driver_is_refused() -> None:
    with (
        pytest.raises(CudaError, match="too old: it has no cuStreamCreate"),
        open_driver(FakeCuda(lacks="cuStreamCreate")),
    ):
        pass


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DRIVER_LIBRARY", "libno-such-driver.so.1")
    with pytest.raises(CudaError, match="the CUDA driver cannot be loaded"), open_driver():
        pass
