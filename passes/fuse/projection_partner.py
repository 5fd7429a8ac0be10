"""The projection that a projection meets in an attention core."""

from __future__ import annotations

import onnx_ir as ir

from optcc.graph.edit import is_constant

__all__ = ["partner_of"]

_LIMIT = 24
"""Nodes on the way; an attention core has fewer."""

_ON_THE_WAY = frozenset(
    {
        "Add",
        "Cast",
        "Div",
        "Dropout",
        "Expand",
        "Identity",
        "Mul",
        "Reshape",
        "Softmax",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)


def partner_of(value: ir.Value) -> ir.Node | None:
    """Return the MatMul or Gemm whose result meets `value` in a product, through layout changes.

    For Q that is K, for K it is Q, and for V, which meets the probabilities, it is K. A product
    that is split is a merged one already and has none.
    """
    for _ in range(_LIMIT):
        if len(value.uses()) != 1 or value.is_graph_output():
            return None
        [(node, index)] = value.uses()
        if node.op_type == "MatMul" and node.domain == "":
            other = node.inputs[1 - index]
            return None if other is None or is_constant(other) else _projection_behind(other)
        if node.op_type not in _ON_THE_WAY or node.op_type in ("Softmax", "Split"):
            return None
        value = node.outputs[0]
    return None


def _projection_behind(value: ir.Value) -> ir.Node | None:
    for _ in range(_LIMIT):
        node = value.producer()
        if node is None or node.domain != "":
            return None
        if node.op_type in ("MatMul", "Gemm"):
            right = node.inputs[1]
            if right is None or is_constant(right) or _is_stored(right):
                return node
            value = right
            continue
        inputs = [v for v in node.inputs if v is not None and not is_constant(v)]
        if node.op_type not in _ON_THE_WAY or not inputs:
            return None
        value = inputs[-1] if node.op_type == "Where" else inputs[0]
    return None


def _is_stored(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.op_type == "DequantizeLinear" and is_constant(node.inputs[0])
