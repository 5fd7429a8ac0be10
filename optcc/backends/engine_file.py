"""What a serialized TensorRT engine tells about itself without a GPU.

The header fields were found by comparing engines; those of an enterprise engine are its magic and
version only.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from optcc.backends.trt_plan import operand_precision, read_plan
from optcc.errors import UnsupportedModelError

__all__ = ["EngineHeader", "EngineInfo", "inspect_engine", "is_engine", "read_header"]

_BACKENDS = {b"vtrt": "tensorrt_rtx", b"ftrt": "tensorrt"}
_TARGET_BITS = {1: "sm75", 2: "sm80", 4: "sm86", 8: "sm89", 16: "sm120", 32: "sm121"}
_HEADER_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHeader:
    """The first bytes of an engine.

    Attributes:
        magic: Four letters.
        backend: Name of the backend whose runtime loads it.
        version: Of the TensorRT that built it.
        targets: Names of GPUs it runs on; empty where the header does not tell.
        declared_bytes: Length of the whole file; None where the header does not tell.
        weights_bytes: Of the constants in it; None where the header does not tell.
    """

    magic: str
    backend: str
    version: str
    targets: tuple[str, ...]
    declared_bytes: int | None
    weights_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """Header and program of one engine.

    Attributes:
        bytes: Length of the file.
        launches: Kernels of one inference; None where the engine holds no readable program.
        kernels: Kernels by kind, names sorted.
        achieved: Convolutions and matrix products by the precision of their operands, sorted.
        weighted: (names of the ONNX nodes, kind of kernel, precision) of each of them, in order.
    """

    header: EngineHeader
    bytes: int
    launches: int | None
    kernels: dict[str, int]
    achieved: dict[str, int]
    weighted: tuple[tuple[tuple[str, ...], str, str], ...]


def is_engine(path: Path) -> bool:
    """Whether the file starts like an engine."""
    with path.open("rb") as file:
        return file.read(4) in _BACKENDS


def read_header(path: Path) -> EngineHeader:
    """Read the header.

    Raises:
        UnsupportedModelError: The file is no engine, or ends within its header.
    """
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    backend = _BACKENDS.get(head[:4])
    if backend is None or len(head) < _HEADER_BYTES:
        raise UnsupportedModelError("the file is not a TensorRT engine", where=path.name)
    rtx = backend == "tensorrt_rtx"
    mask = struct.unpack_from("<I", head, 32)[0] if rtx else 0
    return EngineHeader(
        magic=head[:4].decode("ascii"),
        backend=backend,
        version=".".join(map(str, head[24:28])),
        targets=tuple(name for bit, name in _TARGET_BITS.items() if mask & bit),
        declared_bytes=struct.unpack_from("<Q", head, 16)[0] if rtx else None,
        weights_bytes=struct.unpack_from("<Q", head, 56)[0] if rtx else None,
    )


def inspect_engine(path: Path) -> EngineInfo:
    """Read what an engine tells about itself.

    Raises:
        UnsupportedModelError: The file is no engine, or shorter than its header says.
    """
    header, size = read_header(path), path.stat().st_size
    if header.declared_bytes is not None and size < header.declared_bytes:
        raise UnsupportedModelError(
            f"the engine is cut off: {size} of {header.declared_bytes} bytes", where=path.name
        )
    plan = read_plan(path)
    kernels = plan.kernels()
    weighted = tuple((x.nodes or (x.name,), x.kind, operand_precision(x)) for x in plan.weighted())
    return EngineInfo(
        header=header,
        bytes=size,
        launches=len(kernels) if plan.launches else None,
        kernels=dict(sorted(Counter(x.kind for x in kernels).items())),
        achieved=dict(sorted(Counter(precision for _, _, precision in weighted).items())),
        weighted=weighted,
    )
