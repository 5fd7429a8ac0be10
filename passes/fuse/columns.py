"""Weights and biases of Gemm and MatMul by output column."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.passkit.rewrite import Reject, refuse
from passes.fuse.channels import per_channel

__all__ = ["column_bias", "column_count", "gemm_attributes", "scale_columns"]


def column_count(node: ir.Node, weight: tuple[int, ...]) -> int:
    """Return the number of columns of what `node` gives with a weight of this shape."""
    return weight[0] if _is_transposed(node) else weight[-1]


def scale_columns(node: ir.Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Multiply each output column; weight [K, N], or [N, K] where transB says so; scale [N].

    Raises:
        Reject: The numbers of columns differ.
    """
    columns = column_count(node, weight.shape)
    refuse(scale.shape != (columns,), "channel counts differ")
    factors = scale.reshape(-1, 1) if _is_transposed(node) else scale
    return np.asarray(weight.astype(np.float64) * factors)


def column_bias(node: ir.Node, c: np.ndarray | None, columns: int) -> np.ndarray:
    """Return beta * C of a Gemm as one float64 number per column.

    Raises:
        Reject: C differs from row to row.
    """
    if c is None:
        return np.zeros(columns)
    vector = per_channel(c, 2, 1, columns)
    if vector is None:
        raise Reject("the bias of the Gemm differs from row to row")
    return np.asarray(vector * node.attributes.get_float("beta", 1.0))


def gemm_attributes(node: ir.Node) -> dict[str, ir.Attr]:
    """Return the attributes of a Gemm that takes the place of `node`, its beta already applied."""
    return {k: a for k, a in node.attributes.items() if k != "beta"}


def _is_transposed(node: ir.Node) -> bool:
    return node.op_type == "Gemm" and bool(node.attributes.get_int("transB", 0))
