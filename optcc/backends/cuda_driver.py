"""As much of the CUDA driver's interface as running an engine needs, without any CUDA package.

Everything happens in the device's primary context: TensorRT uses the CUDA runtime, which works
there and nowhere else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from optcc.backends.device import DRIVER_LIBRARY

__all__ = ["CudaDriver", "CudaError", "open_driver"]

_Library: TypeAlias = Any
"""A loaded library; its functions have no Python types."""

_DEVICE = 0
_NON_BLOCKING = 1
"""Flag of a stream that does not wait for the default stream."""

_Out = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (_Out, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (_Out, ctypes.c_int),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuStreamCreate": (_Out, ctypes.c_uint),
    "cuStreamDestroy_v2": (ctypes.c_void_p,),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuMemAlloc_v2": (_Out, ctypes.c_size_t),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoHAsync_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuGetErrorName": (ctypes.c_int, _Out),
}


class CudaError(Exception):
    """A call of the driver failed, or there is no driver."""


class CudaDriver:
    """The first device: its memory, and one stream.

    Attributes:
        stream: Handle for the engine.
    """

    def __init__(self, library: _Library, stream: int) -> None:
        self._library = library
        self.stream = stream

    def allocate(self, nbytes: int) -> int:
        """Return the address of fresh device memory; an empty tensor gets one byte."""
        address = ctypes.c_uint64(0)
        _call(self._library, "cuMemAlloc_v2", ctypes.byref(address), max(1, nbytes))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        _call(self._library, "cuMemFree_v2", address)

    def to_device(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous array, in the stream: what is enqueued later sees it."""
        if array.nbytes:
            source = (array.ctypes.data, array.nbytes, self.stream)
            _call(self._library, "cuMemcpyHtoDAsync_v2", address, *source)
            self.synchronize()  # the array may go

    def to_host(self, array: np.ndarray, address: int) -> None:
        """Fill a contiguous array with what the stream has left at an address."""
        if array.nbytes:
            _call(
                self._library,
                "cuMemcpyDtoHAsync_v2",
                array.ctypes.data,
                address,
                array.nbytes,
                self.stream,
            )
            self.synchronize()

    def synchronize(self) -> None:
        """Wait until the stream has done everything."""
        _call(self._library, "cuStreamSynchronize", self.stream)


@contextmanager
def open_driver(library: _Library | None = None) -> Iterator[CudaDriver]:
    """Make the first device current in this thread, with a stream of its own.

    Args:
        library: The loaded driver; None loads it.

    Raises:
        CudaError: There is no driver, no device, or it refuses.
    """
    loaded = _declared(_load() if library is None else library)
    device, context, stream = ctypes.c_int(0), ctypes.c_void_p(), ctypes.c_void_p()
    _call(loaded, "cuInit", 0)
    _call(loaded, "cuDeviceGet", ctypes.byref(device), _DEVICE)
    _call(loaded, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _call(loaded, "cuCtxSetCurrent", context)
        _call(loaded, "cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        try:
            yield CudaDriver(loaded, stream.value or 0)
        finally:
            loaded.cuStreamDestroy_v2(stream)
    finally:
        loaded.cuDevicePrimaryCtxRelease_v2(device)


def _load() -> _Library:
    try:
        return ctypes.CDLL(DRIVER_LIBRARY)
    except OSError as error:
        raise CudaError(f"the CUDA driver cannot be loaded: {error}") from error


def _declared(library: _Library) -> _Library:
    """Tell ctypes the argument types: an address would otherwise be cut to 32 bits."""
    for name, arguments in _SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise CudaError(f"the CUDA driver is too old: it has no {name}") from error
        function.argtypes, function.restype = arguments, ctypes.c_int
    return library


def _call(library: _Library, name: str, *arguments: object) -> None:
    status: int = getattr(library, name)(*arguments)
    if status:
        raise CudaError(f"{name} failed: {_error_name(library, status)}")


def _error_name(library: _Library, status: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorName(status, ctypes.byref(text)) or not text.value:
        return f"error {status}"
    return text.value.decode("ascii", "replace")
