"""Gemm +, -, * or / one constant per column -> Gemm.

s * (alpha * x @ w + beta * c) + t = alpha * x @ (w * s) + (beta * c * s + t)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, maybe, op
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.affine import scale_and_shift_of
from passes.fuse.channels import FLOATS, narrow
from passes.fuse.columns import column_bias, column_count, gemm_attributes, scale_columns

__all__ = ["FuseGemmAffine"]


class FuseGemmAffine(RewritePass):
    """Fold arithmetic with a constant per column into the Gemm before it.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    A constant or a bias that differs from row to row is left alone.
    """

    name = "fuse.gemm-affine"
    exactness = Exactness.ROUNDING
    pattern = op(
        ("Add", "Sub", "Mul", "Div"),
        op("Gemm", any_("x"), const("w"), maybe(const("c")), name="gemm"),
        const("k"),
    )

    def check(self, m: Match) -> None:
        """Refuse other types, shared weights and constants that are not per column."""
        w = m.value("w")
        refuse(w.dtype not in FLOATS, f"{w.name!r} is not of a float type")
        scales = m.root.op_type in ("Mul", "Div")
        refuse(scales and len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make a Gemm with the folded numbers; an unscaled weight is used as it is."""
        weight, bias = self.folded(m)
        name, w, gemm = m.outputs[0].name, m.value("w"), m.node("gemm")
        if weight is not None:
            w = add_constant(graph, f"{name}.weight", weight)
        c = add_constant(graph, f"{name}.bias", bias)
        return node_like(gemm, [m.value("x"), w, c], attributes=gemm_attributes(gemm)).outputs

    def folded(self, m: Match) -> tuple[np.ndarray | None, np.ndarray]:
        """Compute the weight, None where it stays, and the bias.

        Raises:
            Reject: The constant is not per column, or a result does not fit the type.
        """
        gemm, w = m.node("gemm"), m.array("w")
        columns = column_count(gemm, w.shape)
        scale, shift = scale_and_shift_of(m, rank=2, axis=1, channels=columns)
        old = column_bias(gemm, m.optional_array("c"), columns)
        bias = narrow(old * (1.0 if scale is None else scale) + shift, w, "bias")
        if scale is None:
            return None, bias
        return narrow(scale_columns(gemm, w, scale), w, "weight"), bias
