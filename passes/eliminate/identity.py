"""Nodes that give back what they read."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.edit import is_constant, needs_identity
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, maybe, op
from optcc.passkit.rewrite import RewritePass, refuse
from passes.eliminate.noop import NOOP_TESTS, is_noop

__all__ = ["EliminateIdentity"]

_REST = [maybe(any_())] * 4


class EliminateIdentity(RewritePass):
    """Remove Identity and every node that is one in effect.

    Such are Cast to the same type, Reshape to the same shape, Transpose in the same order, Dropout
    in inference, Pad by nothing, a Slice of everything and their like (`passes.eliminate.noop`).

    Keeps: the bits of every value that is left, and names, types and shapes of graph outputs.
    Nodes that read a constant are left to `fold.constants`: a runtime may compute with another
    kernel, hence round otherwise, where an operand turns out to be constant.
    """

    name = "eliminate.identity"
    exactness = Exactness.BITWISE
    needs = frozenset({Fact.SHAPES})
    pattern = op(tuple(NOOP_TESTS), any_("x"), *_REST)

    def applies(self, m: Match) -> bool:
        """Take nodes that change nothing."""
        x = m.value("x")
        return x is m.root.inputs[0] and not is_constant(x) and is_noop(m.root)

    def check(self, m: Match) -> None:
        """Refuse where the node carries an output name or a second result."""
        refuse(len(m.outputs) > 1 or m.outputs[0] is not m.root.outputs[0], "its mask is read")
        graph, old = m.root.graph, m.outputs[0]
        carries = isinstance(graph, ir.Graph) and needs_identity(graph, old, m.value("x"))
        refuse(carries, f"it carries the output {old.name!r} of the graph")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Let readers read the input."""
        return [m.value("x")]

    def describe(self, m: Match) -> str:
        """Name the kind of node."""
        return f"{m.root.op_type} that changes nothing removed"
