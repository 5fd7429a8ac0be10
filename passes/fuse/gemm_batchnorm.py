"""Gemm or MatMul + BatchNormalization -> Gemm.

y = s * (alpha * x @ w + beta * c) + t = alpha * x @ (w * s) + (beta * c * s + t)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, maybe, op
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.batchnorm import PARAMETERS, scale_and_shift
from passes.fuse.channels import narrow
from passes.fuse.columns import column_bias, gemm_attributes, scale_columns

__all__ = ["FuseGemmBatchNorm"]


class FuseGemmBatchNorm(RewritePass):
    """Fold an inference BatchNormalization into the matrix product that feeds it.

    Only for products of rank 2, where the channel axis of the BatchNormalization is the column.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    """

    name = "fuse.gemm-batchnorm"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = op(
        "BatchNormalization",
        op(("Gemm", "MatMul"), any_("x"), const("w"), maybe(const("c")), name="product"),
        *(any_(name) for name in PARAMETERS),
    )

    def check(self, m: Match) -> None:
        """Refuse products of another rank, shared weights and numbers that cannot be folded."""
        w = m.value("w")
        refuse(len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        rank = 2 if m.node("product").op_type == "Gemm" else known_rank(m.value("x"))
        refuse(rank != 2 or known_rank(w) != 2, f"{m.value('x').name!r} is not of rank 2")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make a Gemm with the folded numbers."""
        weight, bias = self.folded(m)
        name, product = m.outputs[0].name, m.node("product")
        w = add_constant(graph, f"{name}.weight", weight)
        c = add_constant(graph, f"{name}.bias", bias)
        attributes = gemm_attributes(product)
        inputs = [m.value("x"), w, c]
        return node_like(product, inputs, op_type="Gemm", attributes=attributes).outputs

    def folded(self, m: Match) -> tuple[np.ndarray, np.ndarray]:
        """Compute weight and bias of the new Gemm.

        Raises:
            Reject: They cannot be computed, or do not fit the type of the weight.
        """
        product, w = m.node("product"), m.array("w")
        scale, shift = scale_and_shift(m, m.root)
        weight = scale_columns(product, w, scale)
        bias = column_bias(product, m.optional_array("c"), len(scale)) * scale + shift
        return narrow(weight, w, "weight"), narrow(bias, w, "bias")
