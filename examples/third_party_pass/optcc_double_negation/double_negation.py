"""-(-x) becomes x."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, op
from optcc.passkit.rewrite import RewritePass

__all__ = ["RemoveDoubleNegation"]


class RemoveDoubleNegation(RewritePass):
    """Take away two negations that follow each other.

    Keeps: graph inputs and outputs, their names, types and shapes; every bit of every output.
    """

    name = "example.double-negation"
    exactness = Exactness.BITWISE
    pattern = op("Neg", op("Neg", any_("x")))

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Read x itself; an Identity keeps the name of a graph output."""
        return ir.Node("", "Identity", [m.value("x")], name=m.root.name).outputs
