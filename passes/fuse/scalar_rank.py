"""One-element constants that make a value longer in dims than it was."""

from __future__ import annotations

from optcc.graph.edit import is_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.matcher import Match
from optcc.passkit.rewrite import refuse

__all__ = ["refuse_added_dims"]


def refuse_added_dims(m: Match) -> None:
    """Refuse a match in which a constant has more dims than `x`, so that the output has too.

    Raises:
        Reject: There is one, or the rank of `x` is unknown and a constant has dims.
    """
    rank = known_rank(m.value("x")) or 0
    for value in (v for n in m.region for v in n.inputs if v is not None and is_constant(v)):
        refuse((known_rank(value) or 0) > rank, f"constant {value.name!r} may add dims")
