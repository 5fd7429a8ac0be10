"""One product of a value with a constant matrix, and the bias that is added to it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.graph.shapes import known_rank, static_dims
from optcc.passkit.rewrite import Reject, refuse
from passes.fuse.channels import FLOATS, narrow, per_channel
from passes.fuse.columns import column_bias, column_count

__all__ = ["Kind", "Projection", "projection_at"]

_NARROW = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


@dataclass(frozen=True, slots=True)
class Kind:
    """What products of one value must share to be one product.

    Attributes:
        operator: Gemm or MatMul; a MatMul of two matrices is a Gemm without bias.
        transposes: transA and transB.
        alpha: Factor of the product.
        dtype: Of the product.
        stored: Type in which the weight is stored.
    """

    operator: str
    transposes: tuple[int, int]
    alpha: float
    dtype: ir.DataType | None
    stored: ir.DataType | None

    def difference(self, other: Kind) -> str:
        """Name the first thing that differs."""
        names = (f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name))
        return next(names, "nothing")


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A MatMul or Gemm of a value with a constant matrix, with its bias.

    Attributes:
        node: The MatMul or Gemm.
        x: The value that it reads.
        kind: See `Kind`.
        columns: Number of output channels.
        bias: One number per output channel, float64; None when there is none.
        add: The Add that brings the bias; None for a Gemm.
        dequantize: What gives the weight when it is stored in int8.
    """

    node: ir.Node
    x: ir.Value
    kind: Kind
    columns: int
    bias: np.ndarray | None
    add: ir.Node | None
    dequantize: ir.Node | None

    @property
    def nodes(self) -> list[ir.Node]:
        """Return what a merged product stands for."""
        return [n for n in (self.dequantize, self.node, self.add) if n is not None]

    @property
    def output(self) -> ir.Value:
        """Return the value with its bias."""
        return (self.add or self.node).outputs[0]

    @property
    def stored(self) -> ir.Value:
        """Return the constant that holds the weight."""
        value = self.node.inputs[1] if self.dequantize is None else self.dequantize.inputs[0]
        assert value is not None
        return value


def projection_at(node: ir.Node) -> Projection | None:
    """Read `node`; None when it is no product of a value with a constant matrix.

    Raises:
        Reject: It is one that cannot be merged with others.
    """
    if node.op_type not in ("MatMul", "Gemm") or node.domain != "":
        return None
    x, weight = node.inputs[:2]
    if x is None or weight is None or is_constant(x):
        return None
    dequantize = _dequantize(weight)
    stored = weight if dequantize is None else dequantize.inputs[0]
    dims = static_dims(stored)
    if stored is None or not is_constant(stored) or dims is None or len(dims) != 2:
        return None
    if (weight.dtype or x.dtype) not in FLOATS:
        return None
    _refuse_readers(weight, stored)
    columns = column_count(node, dims)
    kind = _kind(node, x, stored, weight)
    if node.op_type == "Gemm":
        return Projection(node, x, kind, columns, _gemm_bias(node, columns), None, dequantize)
    bias, add = _added_bias(node, columns)
    return Projection(node, x, kind, columns, bias, add, dequantize)


def _dequantize(weight: ir.Value) -> ir.Node | None:
    node = weight.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.domain != "":
        return None
    stored = node.inputs[0]
    if stored is None or not is_constant(stored):
        return None
    refuse(stored.dtype not in _NARROW, f"weight {stored.name!r} is {stored.dtype}, not int8")
    refuse(bool(node.attributes.get_int("block_size", 0)), f"{node.name!r} has a scale per block")
    constant = all(v is None or is_constant(v) for v in node.inputs)
    refuse(not constant, f"the scale of weight {stored.name!r} is not constant")
    return node


def _refuse_readers(*weights: ir.Value) -> None:
    for value in dict.fromkeys(weights):
        shared = len(value.uses()) > 1 or value.is_graph_output()
        refuse(shared, f"weight {value.name!r} is also read elsewhere")


def _kind(node: ir.Node, x: ir.Value, stored: ir.Value, weight: ir.Value) -> Kind:
    get = node.attributes.get_int
    transposes = (get("transA", 0), get("transB", 0)) if node.op_type == "Gemm" else (0, 0)
    alpha = node.attributes.get_float("alpha", 1.0) if node.op_type == "Gemm" else 1.0
    operator = "Gemm" if known_rank(x) == 2 else node.op_type
    return Kind(operator, transposes, alpha, weight.dtype or x.dtype, stored.dtype)


def _gemm_bias(node: ir.Node, columns: int) -> np.ndarray | None:
    c = node.inputs[2] if len(node.inputs) > 2 else None
    if c is None:
        return None
    array = constant_of(c)
    if array is None:
        raise Reject(f"its bias {c.name!r} is not constant")
    return narrow(column_bias(node, array, columns), array, "bias").astype(np.float64)


def _added_bias(node: ir.Node, columns: int) -> tuple[np.ndarray | None, ir.Node | None]:
    """Return the bias that the only reader adds, or nothing: then it stays where it is."""
    product = node.outputs[0]
    if product.is_graph_output() or len(product.uses()) != 1:
        return None, None
    [(add, index)] = product.uses()
    rank = known_rank(product)
    if add.op_type != "Add" or add.domain != "" or add.graph is not node.graph or rank is None:
        return None, None
    array = constant_of(add.inputs[1 - index])
    bias = None if array is None else per_channel(array, rank, rank - 1, columns)
    return (None, None) if bias is None else (bias, add)
