"""Max, Min and Clip with constant bounds -> Relu, or Clip."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, maybe, one_of, op, scalar
from optcc.passkit.rewrite import RewritePass, refuse
from passes.fuse.channels import FLOATS
from passes.fuse.clip_bounds import Bounds, bounded_node, bounds_of

__all__ = ["FuseClipSpelling"]


class FuseClipSpelling(RewritePass):
    """Write `Max(x, 0)` and `Clip(x, 0)` as Relu, other Max and Min with one number as Clip.

    Keeps: graph inputs and outputs, their names, types and shapes; every number but the sign of 0.
    A one-element constant of higher rank than x would add dims and is left alone.
    """

    name = "fuse.clip-spelling"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = one_of(
        op(("Max", "Min"), any_("x"), scalar(name="bound")),
        op("Clip", any_("x"), maybe(any_()), maybe(any_())),
    )

    def applies(self, m: Match) -> bool:
        """Take what is not spelled so already."""
        relu = Bounds(0.0, math.inf)
        return m.value("x").dtype in FLOATS and (m.has("bound") or bounds_of(m.root) == relu)

    def check(self, m: Match) -> None:
        """Refuse a constant that adds dims."""
        if m.has("bound"):
            dims, rank = known_rank(m.value("bound")) or 0, known_rank(m.value("x")) or 0
            refuse(dims > rank, f"constant {m.value('bound').name!r} may add dims")
            refuse(math.isnan(float(m.array("bound").reshape(()))), "the bound is not a number")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the Relu or Clip."""
        dtype = m.value("x").dtype
        assert dtype is not None
        return bounded_node(graph, m.root, m.value("x"), _bounds(m), dtype).outputs


def _bounds(m: Match) -> Bounds:
    if not m.has("bound"):
        return Bounds(0.0, math.inf)
    number = float(m.array("bound").reshape(()))
    return Bounds(number, math.inf) if m.root.op_type == "Max" else Bounds(-math.inf, number)
