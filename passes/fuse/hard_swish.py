"""x * HardSigmoid(x) and x * Clip(x + 3, 0, 6) / 6 -> HardSwish."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, one_of, op, scalar
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.hard_sigmoid import SIXTH, refuse_type, relu6_of_shifted
from passes.fuse.scalar_rank import refuse_added_dims

__all__ = ["FuseHardSwish"]

_FIRST_OPSET = 14


class FuseHardSwish(RewritePass):
    """Write a decomposed hard swish as HardSwish.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    """

    name = "fuse.hard-swish"
    exactness = Exactness.ROUNDING
    pattern = one_of(
        op("Mul", any_("x"), op("HardSigmoid", any_("x"), name="sigmoid")),
        op("Div", op("Mul", any_("x"), relu6_of_shifted), scalar(6.0)),
        op("Mul", op("Mul", any_("x"), relu6_of_shifted), scalar(SIXTH)),
        op("Mul", op("Div", any_("x"), scalar(6.0)), relu6_of_shifted),
        op("Mul", op("Mul", any_("x"), scalar(SIXTH)), relu6_of_shifted),
    )

    def check(self, m: Match) -> None:
        """Refuse another slope or offset, types other than float, and older opsets."""
        refuse(m.opset < _FIRST_OPSET, f"opset {m.opset} has no HardSwish")
        refuse_type(m.value("x"))
        refuse_added_dims(m)
        if m.has("sigmoid"):
            attributes = m.node("sigmoid").attributes
            alpha, beta = attributes.get_float("alpha", 0.2), attributes.get_float("beta", 0.5)
            same = math.isclose(alpha, SIXTH, rel_tol=1e-6) and math.isclose(beta, 0.5)
            refuse(not same, f"its slope is {alpha:.6g} and its offset {beta:.6g}")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the HardSwish."""
        return node_like(m.root, [m.value("x")], op_type="HardSwish", attributes={}).outputs
