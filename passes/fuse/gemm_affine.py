"""Gemm +, -, * or / one constant per column -> Gemm.

s * (alpha * x @ w + beta * c) + t = alpha * x @ (w * s) + (beta * c * s + t)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, maybe, op
from passes.fuse.affine import AffineFold, scale_and_shift_of
from passes.fuse.channels import narrow
from passes.fuse.columns import column_bias, column_count, gemm_attributes, scale_columns

__all__ = ["FuseGemmAffine"]


class FuseGemmAffine(AffineFold):
    """Fold arithmetic with a constant per column into the Gemm before it.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    A constant or a bias that differs from row to row is left alone.
    """

    name = "fuse.gemm-affine"
    pattern = op(
        ("Add", "Sub", "Mul", "Div"),
        op("Gemm", any_("x"), const("w"), maybe(const("c")), name="weighted"),
        const("k"),
    )

    def attributes(self, m: Match) -> dict[str, ir.Attr]:
        """Return those of the Gemm, its beta folded into the bias."""
        return dict(gemm_attributes(m.node("weighted")))

    def folded(self, m: Match) -> tuple[np.ndarray | None, np.ndarray]:
        """Scale columns; see `AffineFold.folded`."""
        gemm, w = m.node("weighted"), m.array("w")
        columns = column_count(gemm, w.shape)
        scale, shift = scale_and_shift_of(m, m.root, rank=2, axis=1, channels=columns)
        old = column_bias(gemm, m.optional_array("c"), columns)
        bias = narrow(old * (1.0 if scale is None else scale) + shift, w, "bias")
        if scale is None:
            return None, bias
        return narrow(scale_columns(gemm, w, scale), w, "weight"), bias
