"""Stand-ins for the CUDA driver and for TensorRT, which keep "device" memory on the host.

The driver's functions are real C function pointers, so that what ctypes makes of the arguments is
tested too. The engine computes y = 2 x + 1 and n = the number of rows.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from typing import Any

import numpy as np

OUT = ctypes.POINTER(ctypes.c_uint64)
OUT_INT = ctypes.POINTER(ctypes.c_int)
STREAM = 0x7F00_1234_5678
"""Above 32 bits, as real handles are."""

NO_DEVICE_STATUS = 100


class FakeCuda:
    """A driver that counts what is open, and refuses what was not opened."""

    def __init__(self, *, init: int = 0, lacks: str = "", memory: int = 1 << 20) -> None:
        self.memory: dict[int, Any] = {}
        self.left, self.contexts, self.streams, self.syncs = memory, 0, 0, 0
        functions = {
            "cuInit": ((ctypes.c_uint,), lambda flags: init),
            "cuDeviceGet": ((OUT_INT, ctypes.c_int), self._device),
            "cuDevicePrimaryCtxRetain": ((OUT, ctypes.c_int), self._retain),
            "cuDevicePrimaryCtxRelease_v2": ((ctypes.c_int,), self._release),
            "cuCtxSetCurrent": ((ctypes.c_uint64,), lambda context: int(context != 0xC0)),
            "cuStreamCreate": ((OUT, ctypes.c_uint), self._stream),
            "cuStreamDestroy_v2": ((ctypes.c_uint64,), self._end_stream),
            "cuStreamSynchronize": ((ctypes.c_uint64,), self._synchronize),
            "cuMemAlloc_v2": ((OUT, ctypes.c_size_t), self._allocate),
            "cuMemFree_v2": ((ctypes.c_uint64,), self._free),
            "cuMemcpyHtoDAsync_v2": ((ctypes.c_uint64,) * 4, self._copy),
            "cuMemcpyDtoHAsync_v2": ((ctypes.c_uint64,) * 4, self._copy),
            "cuGetErrorName": ((ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)), self._error),
        }
        for name, (arguments, function) in functions.items():
            if name != lacks:
                setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(function))

    def _device(self, out: Any, index: int) -> int:
        out[0] = 0
        return index

    def _retain(self, out: Any, device: int) -> int:
        out[0] = 0xC0
        self.contexts += 1
        return 0

    def _release(self, device: int) -> int:
        self.contexts -= 1
        return 0

    def _stream(self, out: Any, flags: int) -> int:
        out[0] = STREAM
        self.streams += 1
        return int(flags != 1)

    def _end_stream(self, stream: int) -> int:
        self.streams -= 1
        return int(stream != STREAM)

    def _synchronize(self, stream: int) -> int:
        self.syncs += 1
        return int(stream != STREAM)

    def _allocate(self, out: Any, size: int) -> int:
        if size == 0 or size > self.left:
            return 2
        block = ctypes.create_string_buffer(size)
        out[0] = ctypes.addressof(block)
        self.memory[ctypes.addressof(block)] = block
        self.left -= size
        return 0

    def _free(self, address: int) -> int:
        if address not in self.memory:
            return 1
        self.left += len(self.memory.pop(address))
        return 0

    def _copy(self, to: int, source: int, size: int, stream: int) -> int:
        if stream != STREAM or (to in self.memory) == (source in self.memory):
            return 1
        ctypes.memmove(to, source, size)
        return 0

    def _error(self, status: int, out: Any) -> int:
        names = {1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY"}
        if status not in names:
            return 1
        out[0] = names[status]
        return 0


class DataType(Enum):
    FLOAT = 0
    INT64 = 8
    FP8 = 6

    def __str__(self) -> str:
        return f"DataType.{self.name}"


class Mode(Enum):
    INPUT = 1
    OUTPUT = 2


class Location(Enum):
    DEVICE = 0
    HOST = 1


class FakeEngine:
    """x: [1..4, 3] -> y: [1..4, 3] and, on the host, n: []."""

    TENSORS = (
        ("x", Mode.INPUT, Location.DEVICE),
        ("y", Mode.OUTPUT, Location.DEVICE),
        ("n", Mode.OUTPUT, Location.HOST),
    )
    num_io_tensors = 3

    def __init__(self, log: Any, kind: DataType, rows: int | None) -> None:
        self.log, self.kind, self.rows = log, kind, rows

    def get_tensor_name(self, index: int) -> str:
        return self.TENSORS[index][0]

    def get_tensor_mode(self, name: str) -> Mode:
        return next(mode for n, mode, _ in self.TENSORS if n == name)

    def get_tensor_location(self, name: str) -> Location:
        return next(place for n, _, place in self.TENSORS if n == name)

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType.INT64 if name == "n" else self.kind

    def create_execution_context(self, config: object = None) -> FakeContext:
        return FakeContext(self)


class FakeContext:
    """Runs on whatever memory it was pointed to."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.shape = engine, (0, 0)
        self.addresses: dict[str, int] = {}
        self.runs = 0

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        if len(shape) != 2 or not 1 <= shape[0] <= 4 or shape[1] != 3:
            self.engine.log("ERROR", "not in the profile")
            return False
        self.shape = shape
        return True

    def infer_shapes(self) -> list[str]:
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name == "n":
            return ()
        return (self.shape[0] if self.engine.rows is None else self.engine.rows, 3)

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        if stream != STREAM or set(self.addresses) != {"x", "y", "n"}:
            return False
        count = self.shape[0] * self.shape[1]
        x, y = (np.ctypeslib.as_array(self._floats(name, count)) for name in ("x", "y"))
        y[:] = 2 * x + 1
        ctypes.c_int64.from_address(self.addresses["n"]).value = self.shape[0]
        self.runs += 1
        return True

    def _floats(self, name: str, count: int) -> Any:
        return (ctypes.c_float * count).from_address(self.addresses[name])


class FakeModule:
    """What `import tensorrt` would give."""

    __version__ = "11.0.fake"
    TensorIOMode, TensorLocation = Mode, Location

    def __init__(self, *, kind: DataType = DataType.FLOAT, rows: int | None = None) -> None:
        self._kind, self._rows = kind, rows
        module = self

        class ILogger:
            def __init__(self) -> None:
                pass

        class Runtime:
            def __init__(self, logger: Any) -> None:
                self.logger = logger

            def deserialize_cuda_engine(self, engine: bytes) -> FakeEngine | None:
                if engine != b"an engine":
                    self.logger.log("Severity.ERROR", "bad magic")
                    return None
                return FakeEngine(self.log, module._kind, module._rows)

            def log(self, severity: str, text: str) -> None:
                self.logger.log(f"Severity.{severity}", text)

        self.ILogger, self.Runtime = ILogger, Runtime
