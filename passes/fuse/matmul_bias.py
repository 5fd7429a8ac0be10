"""MatMul + Add of one constant per column -> Gemm, for inputs of rank 2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, op
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.affine import scale_and_shift_of
from passes.fuse.channels import FLOATS, narrow

__all__ = ["FuseMatMulBias"]


class FuseMatMulBias(RewritePass):
    """Make one Gemm of a MatMul of rank 2 and its bias.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    Products of other ranks stay MatMul + Add: a Gemm there would need Reshapes around it.
    """

    name = "fuse.matmul-bias"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = op(("Add", "Sub"), op("MatMul", any_("x"), const("w"), name="matmul"), const("k"))

    def applies(self, m: Match) -> bool:
        """Take products of two matrices."""
        return known_rank(m.value("x")) == 2 and known_rank(m.value("w")) == 2

    def check(self, m: Match) -> None:
        """Refuse other types, and constants that are no bias."""
        w = m.value("w")
        refuse(w.dtype not in FLOATS, f"{w.name!r} is not of a float type")
        self.bias(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the Gemm."""
        c = add_constant(graph, f"{m.outputs[0].name}.bias", self.bias(m))
        inputs = [m.value("x"), m.value("w"), c]
        return node_like(m.node("matmul"), inputs, op_type="Gemm", attributes={}).outputs

    def bias(self, m: Match) -> np.ndarray:
        """Return the constant as [columns].

        Raises:
            Reject: It differs from row to row.
        """
        w = m.array("w")
        _, shift = scale_and_shift_of(m, m.root, rank=2, axis=1, channels=w.shape[1])
        return narrow(shift, w, "bias")
