"""MatMul * or / one constant per column -> MatMul:  (x @ w) * s = x @ (w * s)."""

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
from passes.fuse.columns import scale_columns

__all__ = ["FuseMatMulScale"]


class FuseMatMulScale(RewritePass):
    """Fold a constant factor per column into the weight of the MatMul before it.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    """

    name = "fuse.matmul-scale"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = op(("Mul", "Div"), op("MatMul", any_("x"), const("w"), name="matmul"), const("k"))

    def check(self, m: Match) -> None:
        """Refuse other types and ranks, shared weights and factors that are not per column."""
        w = m.value("w")
        refuse(w.dtype not in FLOATS, f"{w.name!r} is not of a float type")
        refuse(len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        refuse(known_rank(w) != 2, f"weight {w.name!r} is not of rank 2")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make a MatMul with the scaled weight."""
        w = add_constant(graph, f"{m.outputs[0].name}.weight", self.folded(m))
        return node_like(m.node("matmul"), [m.value("x"), w]).outputs

    def folded(self, m: Match) -> np.ndarray:
        """Compute the weight.

        Raises:
            Reject: The factor is not per column, or a result does not fit the type.
        """
        w = m.array("w")
        rank = known_rank(m.value("x")) or 1
        scale, _ = scale_and_shift_of(m, m.root, rank=rank, axis=rank - 1, channels=w.shape[1])
        assert scale is not None
        return narrow(scale_columns(m.node("matmul"), w, scale), w, "weight")
