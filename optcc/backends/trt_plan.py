"""Reads the lowered program that a TensorRT-RTX engine holds in clear text.

The text is undocumented. So nothing here relies on exact kernel names, whatever is not recognized
is left out, and a node without a recognized kernel is reported as `unknown`, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from optcc.backends.contract import PRECISION_BITS

__all__ = ["WEIGHTED_KINDS", "Launch", "Plan", "operand_precision", "read_plan"]

WEIGHTED_KINDS = frozenset({"corrltn", "deconvolution", "fully_connected"})
"""Kinds of kernels that multiply by weights: convolution, deconvolution, matrix product."""

_HOST_KINDS = frozenset({"sub_tensor", "signal", "wait", "assert", "shape_call"})
_TYPES = {
    "int8": "int8",
    "int4": "int4",
    "half": "fp16",
    "bf16": "bf16",
    "float": "fp32",
    "fp8_e4m3": "fp8",
    "fp4_e2m1": "fp4",
}
_CHUNK = 1 << 20
_LONGEST_PROGRAM = 64 << 20
_START = b"header {\n"
_NOT_TEXT = re.compile(rb"[^\x09\x0a\x1e\x1f\x20-\x7e\x80-\xff]")
_TENSOR = re.compile(r'^  (?:sub_)?tensor=\{[^\n]*? name="([^"\n]*)"([^\n]*)\}$', re.M)
_TYPE = re.compile(r" type=(\w+)")
_REGION = re.compile(r' region="?([^"\s]*)"?')
_STATEMENT = re.compile(r"^  (\w+)=\{ ", re.M)
_NAME = re.compile(r'name=(?:"([^"]*)"|(\S+))')
_READS = re.compile(r'\binput(?:_args)?=\{\s*((?:"[^"]*"\s*)*)\}')
_WRITES = re.compile(r'\boutput(?:_args)?=\{\s*((?:"[^"]*"\s*)*)\}')
_LAYERS = re.compile(r'\blayers="((?:[^"\\]|\\.)*)"')
_QUOTED = re.compile(r'"([^"]*)"')
_ESCAPED = re.compile(r"\\(.)")
_LAYER_PREFIX = "[ONNX Layer: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One statement of the program.

    Attributes:
        kind: `corrltn` (convolution), `fully_connected` (matrix product), `deconvolution`,
            `function` (generated kernel), `runtime_fusion`, `maxpool`, ...
        reads: Element types of the tensors that it reads, in order; "?" when not known.
        writes: The same for the tensors that it writes.
        nodes: Names of the ONNX nodes that it serves.
        on_device: Whether it writes device memory: a kernel, not shape arithmetic on the host.
    """

    kind: str
    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    nodes: tuple[str, ...]
    on_device: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """All programs of one engine.

    Attributes:
        launches: What one inference starts, in order.
        bodies: What is inside the fused kernels that the runtime finishes; no launches of their
            own.
    """

    launches: tuple[Launch, ...]
    bodies: tuple[Launch, ...]

    def kernels(self) -> tuple[Launch, ...]:
        """Return the launches that run on the device."""
        return tuple(launch for launch in self.launches if launch.on_device)

    def weighted(self) -> tuple[Launch, ...]:
        """Return the convolutions and matrix products, those inside fused kernels included."""
        return tuple(x for x in (*self.launches, *self.bodies) if x.kind in WEIGHTED_KINDS)


def operand_precision(launch: Launch) -> str:
    """Return what a convolution or matrix product multiplies in: the wider of its two operands."""
    operands = [t for t in launch.reads[:2] if t in PRECISION_BITS]
    if len(operands) < 2:
        return "unknown"
    return max(operands, key=PRECISION_BITS.__getitem__)


def read_plan(engine: Path) -> Plan:
    """Read the programs of `engine` in bounded memory.

    Returns:
        An empty plan when the file holds no readable program (an enterprise engine, say).
    """
    launches: list[Launch] = []
    bodies: list[Launch] = []
    for program in _programs(engine):
        is_body = "accelerators={*}" in program[: program.find("\ndescriptors {")]
        (bodies if is_body else launches).extend(_statements(program))
    return Plan(tuple(launches), tuple(bodies))


def _programs(engine: Path) -> Iterator[str]:
    """Yield each block of text that starts like a program."""
    with engine.open("rb") as file:
        held = b""
        while True:
            start = held.find(_START)
            if start >= 0:
                text, held = _take_text(held[start:], file)
                yield text.decode("utf-8", "replace")
                continue
            chunk = file.read(_CHUNK)
            if not chunk:
                return
            held = held[1 - len(_START) :] + chunk


def _take_text(held: bytes, file: BinaryIO) -> tuple[bytes, bytes]:
    """Split `held` at its first byte that is no text, reading on where there is none yet."""
    end = _NOT_TEXT.search(held)
    while end is None and len(held) < _LONGEST_PROGRAM and (chunk := file.read(_CHUNK)):
        seen = len(held)
        held += chunk
        end = _NOT_TEXT.search(held, seen)
    stop = len(held) if end is None else end.start()
    return held[:stop], held[stop:]


def _statements(program: str) -> Iterator[Launch]:
    """Yield the statements of the `main` part."""
    begin = program.find("\nmain {")
    if begin < 0:
        return
    end = program.find("\n}\n", begin)
    types, regions = _tensors(program)
    main = program[begin : len(program) if end < 0 else end + 1]
    starts = list(_STATEMENT.finditer(main))
    for at, start in enumerate(starts):
        stop = starts[at + 1].start() if at + 1 < len(starts) else len(main)
        yield _statement(start.group(1), main[start.end() : stop], types, regions)


def _tensors(text: str) -> tuple[dict[str, str], dict[str, str]]:
    types: dict[str, str] = {}
    regions: dict[str, str] = {}
    for name, rest in _TENSOR.findall(text):
        if found := _TYPE.search(rest):
            types[name] = _TYPES.get(found.group(1), found.group(1))
        if found := _REGION.search(rest):
            regions[name] = found.group(1)
    return types, regions


def _statement(kind: str, body: str, types: dict[str, str], regions: dict[str, str]) -> Launch:
    name, writes = _NAME.search(body), _names(_WRITES, body)
    places = [regions.get(n, "") for n in writes]
    return Launch(
        kind=kind,
        name=(name.group(1) or name.group(2) or "") if name else "",
        reads=tuple(types.get(n, "?") for n in _names(_READS, body)),
        writes=tuple(types.get(n, "?") for n in writes),
        nodes=_nodes(body),
        on_device=kind not in _HOST_KINDS and any("hmem" not in p for p in places),
    )


def _names(pattern: re.Pattern[str], body: str) -> list[str]:
    found = pattern.search(body)
    return _QUOTED.findall(found.group(1)) if found else []


def _nodes(body: str) -> tuple[str, ...]:
    found = _LAYERS.search(body)
    text = _ESCAPED.sub(r"\1", found.group(1)) if found else ""
    parts = [p for p in text.split("\x1f") if p.startswith(_LAYER_PREFIX)]
    return tuple(dict.fromkeys(p[len(_LAYER_PREFIX) :].removesuffix("]") for p in parts))
