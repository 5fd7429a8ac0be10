"""Constant factors on the operands and on the product of an attention core."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.graph.shapes import known_rank

__all__ = ["LAYOUT", "Factor", "factor_at", "factors_behind", "is_transposed", "repeats_heads"]

LAYOUT = frozenset({"Expand", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"})
"""Operators that hand every number on as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A Mul or Div by one constant number.

    Attributes:
        node: The Mul or Div.
        data: The value that is scaled.
        number: What it is multiplied by.
    """

    node: ir.Node
    data: ir.Value
    number: float


def factor_at(node: ir.Node) -> Factor | None:
    """Read a Mul or Div by one number that adds no dims; None for anything else."""
    if node.op_type not in ("Mul", "Div") or node.domain != "" or len(node.inputs) != 2:
        return None
    for index in (1,) if node.op_type == "Div" else (1, 0):
        data, constant = node.inputs[1 - index], node.inputs[index]
        number = _number(constant, data)
        if data is not None and number is not None and not is_constant(data):
            return Factor(node, data, 1.0 / number if node.op_type == "Div" else number)
    return None


def _number(constant: ir.Value | None, data: ir.Value | None) -> float | None:
    array = constant_of(constant)
    rank = known_rank(data)
    if array is None or array.size != 1 or array.dtype.kind in "OSUb":
        return None
    if array.ndim > 0 and (rank is None or array.ndim > rank):
        return None
    number = float(array.reshape(()))
    return number if np.isfinite(number) and number != 0 else None


def factors_behind(value: ir.Value) -> list[Factor]:
    """Collect the factors on `value`, the nearest first, as far as no one else reads it.

    Layout changes between them are looked through: they hand the numbers on.
    """
    factors: list[Factor] = []
    current: ir.Value | None = value
    while current is not None and len(current.uses()) == 1 and not current.is_graph_output():
        node = current.producer()
        if node is None or node.domain != "":
            break
        factor = factor_at(node)
        if factor is not None:
            factors.append(factor)
            current = factor.data
        elif node.op_type in LAYOUT:
            current = node.inputs[0]
        else:
            break
    return factors


def is_transposed(value: ir.Value) -> bool:
    """Tell whether the last Transpose before `value` moves another axis to the end.

    True where there is none: then the operand has that layout from the start.
    """
    for node in _layout_behind(value):
        if node.op_type == "Transpose":
            perm = node.attributes.get_ints("perm")
            return perm is None or perm[-1] != len(perm) - 1
    return True


def repeats_heads(value: ir.Value) -> bool:
    """Tell whether heads are repeated on the way to `value`: grouped-query attention."""
    return any(n.op_type in ("Expand", "Tile") for n in _layout_behind(value))


def _layout_behind(value: ir.Value) -> list[ir.Node]:
    nodes: list[ir.Node] = []
    current: ir.Value | None = value
    while current is not None:
        node = current.producer()
        if node is None or node.domain != "":
            break
        factor = factor_at(node)
        if factor is None and node.op_type not in LAYOUT:
            break
        nodes.append(node)
        current = factor.data if factor is not None else node.inputs[0]
    return nodes
