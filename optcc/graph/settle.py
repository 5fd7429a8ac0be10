"""Make shapes as static as they can be: compute what only depends on fixed input sizes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, replace_node
from optcc.graph.io import evaluate
from optcc.graph.shapes import infer_shapes, static_dims
from optcc.graph.walk import all_graphs

__all__ = ["settle_shapes"]

_MOST_ROUNDS = 32
_MOST_ELEMENTS = 4096

_SIZE_ARITHMETIC = frozenset(
    [
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand",
        "Flatten", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less",
        "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax",
        "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Size", "Slice", "Sqrt", "Squeeze",
        "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
    ]
)  # fmt: skip
"""Operators that exporters use to compute sizes."""


def settle_shapes(model: ir.Model) -> None:
    """Infer shapes again and again, replacing computed sizes by constants, in place.

    It is for a copy that is only looked at: the inputs should have fixed shapes, and large
    weights may be left out.
    """
    for _ in range(_MOST_ROUNDS):
        infer_shapes(model)
        settled = [_settle(graph) for graph in all_graphs(model.graph)]
        if not any(settled):
            return


def _settle(graph: ir.Graph) -> bool:
    changed = False
    for node in list(graph):
        array = _value_of(node)
        if array is None:
            continue
        value = node.outputs[0]
        constant = add_constant(graph, f"{value.name}.size", array)
        replace_node(graph, [node], [], [value], [constant])
        changed = True
    return changed


def _value_of(node: ir.Node) -> np.ndarray | None:
    """Compute the only output of a node that works on sizes, when all it reads is known."""
    if node.domain != "" or len(node.outputs) != 1 or node.outputs[0].is_graph_output():
        return None
    if node.op_type == "Shape":
        return _dims_of(node)
    if node.op_type not in _SIZE_ARITHMETIC:
        return None
    arrays = []
    for value in node.inputs:
        array = _small_constant(value)
        if value is not None and array is None:
            return None
        arrays.append(array)
    result = evaluate(node, arrays)
    return result if result is not None and result.size <= _MOST_ELEMENTS else None


def _dims_of(node: ir.Node) -> np.ndarray | None:
    dims = static_dims(node.inputs[0])
    if dims is None:
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(dims))
    return np.array(dims[start:end], np.int64)


def _small_constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None or isinstance(value.const_value, ir.ExternalTensor):
        return None
    array = constant_of(value)
    return array if array is not None and array.size <= _MOST_ELEMENTS else None
