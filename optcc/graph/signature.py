"""The contract of a model with its callers: names, types and dims of inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["Dim", "Signature", "TensorSpec", "signature_of"]

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
