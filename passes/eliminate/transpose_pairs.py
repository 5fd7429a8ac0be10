"""Transpose of a Transpose -> one Transpose, or none."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.edit import needs_identity
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, op
from optcc.passkit.rewrite import Reject, RewritePass, node_like

__all__ = ["EliminateTransposePairs"]


class EliminateTransposePairs(RewritePass):
    """Compose two Transposes in a row.

    Keeps: the bits of the second one's output, and names, types and shapes of graph outputs.
    """

    name = "eliminate.transpose-pairs"
    exactness = Exactness.BITWISE
    needs = frozenset({Fact.SHAPES})
    pattern = op("Transpose", op("Transpose", any_("x"), name="first"))

    def check(self, m: Match) -> None:
        """Refuse where the order is not written down and the rank is unknown."""
        if _composed(m) is None:
            raise Reject(f"the rank of {m.value('x').name!r} is unknown")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Read the first input in the composed order."""
        perm = _composed(m) or []
        x = m.value("x")
        if perm == sorted(perm) and not needs_identity(graph, m.outputs[0], x):
            return [x]
        order = {"perm": ir.AttrInt64s("perm", perm)}
        return list(node_like(m.root, [x], attributes=order).outputs)


def _composed(m: Match) -> list[int] | None:
    first, second = (n.attributes.get_ints("perm") for n in (m.node("first"), m.root))
    rank = next((len(p) for p in (first, second) if p is not None), known_rank(m.value("x")))
    if rank is None:
        return None
    backwards = list(range(rank))[::-1]
    inner = backwards if first is None else list(first)
    return [inner[k] for k in (backwards if second is None else second)]
