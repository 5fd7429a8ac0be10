"""How large the outputs of a constant node will be, without computing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.shapes import static_dims

__all__ = ["predicted_bytes"]


def predicted_bytes(node: ir.Node) -> int | None:
    """Return an upper bound for the bytes of all outputs, or None when there is none at hand.

    Operators whose input values decide about the size have their own rule; all others are bounded
    by their inferred shapes, or by their inputs where they cannot grow.
    """
    if node.op_type in _RULES:
        count = _RULES[node.op_type](node)
        return None if count is None else count * _itemsize(node.outputs[0], node)
    outputs = [v for v in node.outputs if v.name]
    dims = [static_dims(v) for v in outputs]
    if any(d is None for d in dims):
        return _bound_by_inputs(node) if node.op_type in _NEVER_GROW else None
    sizes = zip(outputs, dims, strict=True)
    return sum(math.prod(d or ()) * _itemsize(v, node) for v, d in sizes)


def _itemsize(value: ir.Value, node: ir.Node) -> int:
    dtype = value.dtype
    if dtype is None:
        first = next((v for v in node.inputs if v is not None), None)
        dtype = None if first is None else first.dtype
    return 8 if dtype is None else max(1, math.ceil(dtype.itemsize))


def _bound_by_inputs(node: ir.Node) -> int:
    present = [v for v in node.inputs if v is not None]
    count = sum(math.prod(static_dims(v) or (1,)) for v in present)
    outputs = [v for v in node.outputs if v.name]
    return 8 * max(count, 1) * max(len(outputs), 1)


def _integers(node: ir.Node, index: int) -> list[int] | None:
    array = constant_of(node.inputs[index]) if index < len(node.inputs) else None
    return None if array is None else [int(k) for k in array.reshape(-1)]


def _dims(node: ir.Node) -> tuple[int, ...]:
    return static_dims(node.inputs[0]) or ()


def _constant_of_shape(node: ir.Node) -> int | None:
    target = _integers(node, 0)
    return None if target is None else _count(target)


def _expand(node: ir.Node) -> int | None:
    target = _integers(node, 1)
    if target is None:
        return None
    return _count(np.broadcast_shapes(_dims(node), tuple(target))) if min(target or [1]) >= 0 else 0


def _tile(node: ir.Node) -> int | None:
    repeats = _integers(node, 1)
    return None if repeats is None else _count(_dims(node)) * _count(repeats)


def _range(node: ir.Node) -> int | None:
    start, limit, delta = (constant_of(v) for v in node.inputs[:3])
    if start is None or limit is None or delta is None or not delta.any():
        return None
    steps = (float(limit.reshape(())) - float(start.reshape(()))) / float(delta.reshape(()))
    return max(0, math.ceil(steps)) if math.isfinite(steps) else None


def _pad(node: ir.Node) -> int | None:
    pads = _integers(node, 1)
    if pads is None:
        return None
    half, dims = len(pads) // 2, _dims(node)
    axes = _integers(node, 3) or list(range(half))
    grown = list(dims)
    for k, axis in enumerate(axes):
        grown[axis] += max(0, pads[k]) + max(0, pads[half + k])
    return _count(grown)


def _one_hot(node: ir.Node) -> int | None:
    depth = _integers(node, 1)
    return None if not depth else _count(_dims(node)) * max(0, depth[0])


def _by_shape(node: ir.Node) -> int | None:
    dims = static_dims(node.outputs[0])
    return None if dims is None else _count(dims)


def _count(dims: Sequence[int]) -> int:
    return math.prod(max(0, int(d)) for d in dims)


_RULES: Mapping[str, Callable[[ir.Node], int | None]] = {
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "Pad": _pad,
    "OneHot": _one_hot,
    "Resize": _by_shape,
    "Upsample": _by_shape,
    "NonZero": lambda node: max(1, len(_dims(node))) * _count(_dims(node)),
}

_NEVER_GROW = frozenset(
    {
        "Abs",
        "ArgMax",
        "ArgMin",
        "Cast",
        "Ceil",
        "Compress",
        "Concat",
        "Floor",
        "Neg",
        "Not",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Transpose",
        "Unique",
        "Unsqueeze",
    }
)
"""No more elements than all inputs together, in each output."""
