"""Relu or Clip after Relu or Clip -> one of them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, maybe, op
from optcc.passkit.rewrite import RewritePass, refuse
from passes.fuse.channels import FLOATS
from passes.fuse.clip_bounds import Bounds, bounded_node, bounds_of

__all__ = ["FuseClipChain"]

_CUTS = ("Relu", "Clip")


class FuseClipChain(RewritePass):
    """Cut once where a value is cut twice, with bounds in the type of the value.

    Keeps: graph inputs and outputs, their names, types and shapes; every number but the sign of 0.
    """

    name = "fuse.clip-chain"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = op(
        _CUTS,
        op(_CUTS, any_("x"), maybe(any_()), maybe(any_()), name="first"),
        maybe(any_()),
        maybe(any_()),
    )

    def check(self, m: Match) -> None:
        """Refuse bounds that are not constant, and types other than float."""
        refuse(self.dtype(m) not in FLOATS, f"the type of {m.value('x').name!r} is not float")
        refuse(_composed(m) is None, "its bounds are not constant, or leave nothing between them")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the node with the composed interval."""
        bounds, dtype = _composed(m), self.dtype(m)
        assert bounds is not None
        assert dtype is not None
        return bounded_node(graph, m.root, m.value("x"), bounds, dtype).outputs

    def dtype(self, m: Match) -> ir.DataType | None:
        """Return the type of the value that is cut."""
        return m.value("x").dtype


def _composed(m: Match) -> Bounds | None:
    first, second = bounds_of(m.node("first")), bounds_of(m.root)
    return None if first is None or second is None else first.then(second)
