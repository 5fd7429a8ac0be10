"""The contract of a model with its callers: names, types and dims of inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["Dim", "Signature", "TensorSpec", "joined", "mismatches", "signature_of"]

Dim = int | str | None
"""A fixed size, a named symbol, or unknown."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    Attributes:
        dims: None when even the rank is unknown.
    """

    name: str
    dtype: ir.DataType | None
    dims: tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs in order; initializers are not inputs."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def signature_of(model: ir.Model) -> Signature:
    """Read the signature of `model`."""
    graph = model.graph
    inputs = [v for v in graph.inputs if v.name not in graph.initializers]
    return Signature(tuple(map(_spec, inputs)), tuple(map(_spec, graph.outputs)))


def _spec(value: ir.Value) -> TensorSpec:
    dims = None if value.shape is None else tuple(map(_dim, value.shape.dims))
    return TensorSpec(value.name or "", value.dtype, dims)


def _dim(dim: int | ir.SymbolicDim) -> Dim:
    return dim if isinstance(dim, int) else dim.value


def mismatches(first: Signature, second: Signature) -> list[str]:
    """Say where two models cannot be called alike; a free dim goes with any size."""
    problems = []
    for kind in ("input", "output"):
        old = {s.name: s for s in getattr(first, f"{kind}s")}
        new = {s.name: s for s in getattr(second, f"{kind}s")}
        problems += [f"{kind} {n!r} is in the first model only" for n in old if n not in new]
        problems += [f"{kind} {n!r} is in the second model only" for n in new if n not in old]
        problems += [
            f"{kind} {n!r} is {_text(old[n])} in the first model, {_text(new[n])} in the second"
            for n in old
            if n in new and not _goes_with(old[n], new[n])
        ]
    return problems


def _goes_with(a: TensorSpec, b: TensorSpec) -> bool:
    if a.dtype is not None and b.dtype is not None and a.dtype != b.dtype:
        return False
    if a.dims is None or b.dims is None:
        return True
    fixed = (isinstance(m, int) and isinstance(n, int) and m != n for m, n in _pairs(a, b))
    return len(a.dims) == len(b.dims) and not any(fixed)


def _pairs(a: TensorSpec, b: TensorSpec) -> list[tuple[Dim, Dim]]:
    return list(zip(a.dims or (), b.dims or (), strict=False))


def _text(spec: TensorSpec) -> str:
    dtype = spec.dtype.name.lower() if spec.dtype is not None else "unknown"
    dims = (
        "..." if spec.dims is None else ", ".join("?" if d is None else str(d) for d in spec.dims)
    )
    return f"{dtype}[{dims}]"


def joined(first: Signature, second: Signature) -> Signature:
    """Return the inputs that both take: a size that one of them fixes is fixed."""
    other = {s.name: s for s in second.inputs}
    inputs = [_tighter(s, other.get(s.name, s)) for s in first.inputs]
    return Signature(tuple(inputs), first.outputs)


def _tighter(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    if a.dims is None or b.dims is None:
        return b if a.dims is None else a
    dims = tuple(n if isinstance(n, int) else m for m, n in _pairs(a, b))
    return TensorSpec(a.name, a.dtype, dims)
