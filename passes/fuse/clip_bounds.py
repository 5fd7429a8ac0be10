"""Relu and Clip as an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of
from optcc.passkit.rewrite import node_like

__all__ = ["Bounds", "bounded_node", "bounds_of"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The interval that a value is cut to; an open side is infinite."""

    low: float
    high: float

    def then(self, later: Bounds) -> Bounds:
        """Return the one interval that stands for this one followed by `later`."""
        return Bounds(later.cut(self.low), later.cut(self.high))

    def cut(self, number: float) -> float:
        """Return `number` moved into the interval."""
        return min(max(number, self.low), self.high)


def bounds_of(node: ir.Node) -> Bounds | None:
    """Return the interval of a Relu or Clip; None when it is not constant or empty."""
    if node.op_type == "Relu":
        return Bounds(0.0, math.inf)
    if node.attributes:  # before opset 11 the bounds are attributes
        return None
    low, high = (_bound(node, k, default) for k, default in ((1, -math.inf), (2, math.inf)))
    if low is None or high is None or math.isnan(low) or math.isnan(high) or low > high:
        return None
    return Bounds(low, high)


def _bound(node: ir.Node, index: int, default: float) -> float | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return default
    array = constant_of(value)
    if array is None or array.size != 1:
        return None
    number = float(array.reshape(()))
    largest = float(np.finfo(array.dtype).max) if array.dtype.kind == "f" else math.inf
    return default if abs(number) >= largest and number * default > 0 else number


def bounded_node(
    graph: ir.Graph, like: ir.Node, x: ir.Value, bounds: Bounds, dtype: ir.DataType
) -> ir.Node:
    """Make the Relu or Clip that cuts `x` to `bounds`, in the place of `like`."""
    if bounds == Bounds(0.0, math.inf):
        return node_like(like, [x], op_type="Relu", attributes={})
    name = like.outputs[0].name
    sides = [
        None
        if math.isinf(number)
        else add_constant(graph, f"{name}.{side}", _scalar(number, dtype))
        for side, number in (("min", bounds.low), ("max", bounds.high))
    ]
    return node_like(like, [x, *sides], op_type="Clip", attributes={})


def _scalar(number: float, dtype: ir.DataType) -> np.ndarray:
    return np.array(number, dtype.numpy())
