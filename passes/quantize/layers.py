"""Which weighted nodes can run in int8, and why the others cannot."""

from __future__ import annotations

import math

import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.graph.shapes import known_rank, static_dims

__all__ = ["WEIGHTED", "output_axis", "refusal"]

WEIGHTED = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
"""Operators whose second input is a weight when it is constant."""

_LEAST_WORK = 128
"""Multiply-adds per sample below which Q/DQ cost more than int8 saves."""


def output_axis(node: ir.Node) -> int:
    """Return the output-channel axis of the weight of `node`: the only legal scale axis."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    return 1


def refusal(node: ir.Node) -> str | None:
    """Return why the weighted `node` stays in float, or None when it can run in int8."""
    data, weight = node.inputs[0], node.inputs[1]
    if data is None or weight is None:
        return "an operand is missing"
    return (
        _operand_refusal(node, data, weight)
        or _type_refusal(data, weight)
        or (_gemm_refusal(node) if node.op_type == "Gemm" else None)
        or _size_refusal(node, weight)
    )


def _operand_refusal(node: ir.Node, data: ir.Value, weight: ir.Value) -> str | None:
    if not is_constant(weight):
        if is_constant(data):
            return f"its constant {data.name!r} is the left operand"
        if node.op_type in ("MatMul", "Gemm"):
            return "both operands are activations (attention core): int8 would break its fusion"
        return f"its weight {weight.name!r} is not a constant"
    if is_constant(data):
        return f"its data {data.name!r} is a constant"
    rank = known_rank(weight)
    if node.op_type in ("MatMul", "Gemm") and rank != 2:
        return f"its weight {weight.name!r} has rank {rank}, only [K, N] has a channel axis"
    if known_rank(data) == 1:
        return f"its data {data.name!r} is a vector"
    return None


def _type_refusal(data: ir.Value, weight: ir.Value) -> str | None:
    for value in (data, weight):
        if value.dtype is not None and value.dtype != ir.DataType.FLOAT:
            return f"{value.name!r} is {value.dtype.name}, only FLOAT layers are quantized"
    return None


def _gemm_refusal(node: ir.Node) -> str | None:
    if node.attributes.get_int("transA", 0):
        return "its data is transposed (transA)"
    for name in ("alpha", "beta"):
        factor = node.attributes.get_float(name, 1.0)
        if factor != 1.0:
            return f"{name} is {factor:g}"
    return None


def _size_refusal(node: ir.Node, weight: ir.Value) -> str | None:
    elements = math.prod(static_dims(weight) or ())
    if elements == 0:
        return f"its weight {weight.name!r} is empty"
    positions = _positions(node)
    if positions is None or elements * positions >= _LEAST_WORK:
        return None
    return f"too small to profit: {elements * positions} multiply-adds per sample"


def _positions(node: ir.Node) -> int | None:
    """Return how often each weight is used per sample; None when dims are not known."""
    if node.op_type in ("MatMul", "Gemm"):
        return 1
    value = node.outputs[0] if node.op_type == "Conv" else node.inputs[0]
    if value is None or value.shape is None:
        return None
    spatial = value.shape.dims[2:]
    sizes = [d for d in spatial if isinstance(d, int)]
    return math.prod(sizes) if len(sizes) == len(spatial) else None
