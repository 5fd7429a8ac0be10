"""Is there a GPU that an engine could run on? Asked of the driver, without any CUDA package."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

__all__ = ["DRIVER_LIBRARY", "CudaDevice", "find_cuda_device"]

DRIVER_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
"""The interface of the CUDA driver; comes with the driver, not with any CUDA package."""

_MAJOR, _MINOR = 75, 76
"""Attribute numbers of the compute capability in the driver's interface."""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """The first CUDA device.

    Attributes:
        target: Its name in the target catalog: `sm89`.
    """

    name: str
    target: str


def find_cuda_device() -> CudaDevice | None:
    """Return the first device that the driver offers; None without a driver or a device."""
    try:
        driver = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return None
    count, device = ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        return None
    if driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)
    major, minor = _attribute(driver, _MAJOR, device), _attribute(driver, _MINOR, device)
    return CudaDevice(name.value.decode("utf-8", "replace"), f"sm{major}{minor}")


def _attribute(driver: ctypes.CDLL, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int(0)
    driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
