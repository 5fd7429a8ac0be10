"""Asking the driver, with a stand-in for it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from optcc.backends import device
from optcc.backends.device import CudaDevice, find_cuda_device


class Driver:
    """As much of the driver's interface as is asked for."""

    def __init__(self, count: int, init: int = 0) -> None:
        self.count, self.init = count, init

    def cuInit(self, flags: int) -> int:
        return self.init

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = self.count
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, handle: Any) -> int:
        buffer.value = b"Some GPU"
        return 0

    def cuDeviceGetAttribute(self, out: Any, number: int, handle: Any) -> int:
        out._obj.value = {75: 8, 76: 9}[number]
        return 0


def install(monkeypatch: pytest.MonkeyPatch, driver: Driver | OSError) -> None:
    def load(name: str) -> Driver:
        if isinstance(driver, OSError):
            raise driver
        return driver

    monkeypatch.setattr(device.ctypes, "CDLL", load)


def test_the_first_device_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver(count=2))
    assert find_cuda_device() == CudaDevice("Some GPU", "sm89")


@pytest.mark.parametrize(
    "driver", [OSError("no such library"), Driver(count=0), Driver(count=1, init=100)]
)
def test_no_device(driver: Driver | OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, driver)
    assert find_cuda_device() is None


def test_ctypes_is_the_real_one_again() -> None:
    assert ctypes.CDLL.__module__ == "ctypes"
