"""Operators that do the same in any order of axes, and what must be told them when it changes.

`order` is the permutation p of v = Transpose(v', p): axis a of v is axis p[a] of v'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.graph.shapes import known_rank

__all__ = ["carried_inputs", "carries", "reorder_attributes", "reordered_constant"]

Order = Sequence[int]

_ONE = frozenset(
    [
        "Abs",
        "Acos",
        "Asin",
        "Atan",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
    ]
)
_SEVERAL = frozenset(
    [
        "Add",
        "And",
        "Div",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Or",
        "PRelu",
        "Pow",
        "Sub",
        "Sum",
        "Where",
        "Xor",
    ]
)
_ALONG = frozenset(["Concat", "Hardmax", "LogSoftmax", "Softmax", "Split"])
_REDUCE = frozenset(
    [
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ]
)
_SCALED = frozenset({"QuantizeLinear", "DequantizeLinear"})
_DEFAULT_AXIS = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "Split": 0}


def carries(node: ir.Node, rank: int) -> bool:
    """Tell whether `node` can take data of `rank` in another order of axes."""
    if node.domain != "" or any(a.is_ref() for a in node.attributes.values()):
        return False
    rule = _rule(node.op_type)
    if rule is None or not rule(node):
        return False
    return all(_fits(v, rank) for v in carried_inputs(node))


def carried_inputs(node: ir.Node) -> list[ir.Value]:
    """Return the inputs whose axes are those of the data."""
    count = len(node.inputs) if node.op_type in _SEVERAL or node.op_type == "Concat" else 1
    return [v for v in node.inputs[:count] if v is not None]


def _rule(op_type: str) -> Callable[[ir.Node], bool] | None:
    for kinds, rule in _RULES:
        if op_type in kinds:
            return rule
    return None


def _always(node: ir.Node) -> bool:
    return True


def _keeps_dims(node: ir.Node) -> bool:
    if not node.attributes.get_int("keepdims", 1) or "axes" in node.attributes:
        return False
    return len(node.inputs) < 2 or node.inputs[1] is None or is_constant(node.inputs[1])


def _constant_pads(node: ir.Node) -> bool:
    has_axes = len(node.inputs) > 3 and node.inputs[3] is not None
    return len(node.inputs) > 1 and is_constant(node.inputs[1]) and not has_axes


def _per_tensor(node: ir.Node) -> bool:
    rank = known_rank(node.inputs[1])
    blocked = bool(node.attributes.get_int("block_size", 0))
    return rank == 0 and not blocked


_RULES = (
    (_ONE | _SEVERAL | _ALONG, _always),
    (_REDUCE, _keeps_dims),
    (frozenset({"Pad"}), _constant_pads),
    (_SCALED, _per_tensor),
)


def _fits(value: ir.Value, rank: int) -> bool:
    own = known_rank(value)
    if own is None:
        return False
    return own == rank or own == 0 or (is_constant(value) and own < rank)


def reordered_constant(array: np.ndarray, order: Order) -> np.ndarray:
    """Return the constant operand as it broadcasts against the reordered data."""
    if array.size == 1 and array.ndim < len(order):
        return array
    full = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
    return np.ascontiguousarray(full.transpose(np.argsort(order)))


def reorder_attributes(
    node: ir.Node, order: Order, constant: Callable[[str, np.ndarray], ir.Value]
) -> None:
    """Tell `node` where its axes went.

    Args:
        node: Changed in place.
        order: See above.
        constant: Adds an initializer to the graph: takes its name and data.
    """
    rank = len(order)
    if node.op_type in _ALONG:
        axis = node.attributes.get_int("axis", _DEFAULT_AXIS.get(node.op_type, 0))
        node.attributes["axis"] = ir.AttrInt64("axis", order[axis % rank])
    elif node.op_type in _REDUCE:
        _reorder_axes(node, order, constant)
    elif node.op_type == "Pad":
        pads = constant_of(node.inputs[1])
        assert pads is not None
        moved = pads.reshape(2, rank)[:, np.argsort(order)].reshape(-1)
        node.replace_input_with(1, constant(f"{node.name}.pads", moved))


def _reorder_axes(
    node: ir.Node, order: Order, constant: Callable[[str, np.ndarray], ir.Value]
) -> None:
    axes = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is not None and axes.size:
        moved = np.array([order[int(a) % len(order)] for a in axes.reshape(-1)], np.int64)
        node.replace_input_with(1, constant(f"{node.name}.axes", moved))
