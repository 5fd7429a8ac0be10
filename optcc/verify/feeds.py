"""Contents of the values at which a region begins, one feed per probe and some that go farther."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.verify.boundary import Boundary
from optcc.verify.draw import SPREADS, draw_like, draw_spread
from optcc.verify.execute import CutFeed
from optcc.verify.observe import Seen

__all__ = ["region_feeds"]


@dataclass(frozen=True, slots=True)
class _Turn:
    """Which value of which feed is drawn."""

    feed: int
    place: int


def region_feeds(
    boundary: Boundary, values: Sequence[ir.Value], marks: tuple[int, int], reach: float
) -> tuple[CutFeed, ...] | str:
    """Draw one feed per probe, and one per `SPREADS` that goes beyond what was seen.

    Args:
        boundary: Knows what the values were seen to hold.
        values: Those to draw.
        marks: Seed of the run and a number of the rewrite; they decide what is drawn.
        reach: Largest bound that the region clips at.

    Returns:
        The feeds, or why there are none.
    """
    if not values:
        return ({},)
    known: dict[ir.Value, tuple[Seen, ...]] = {}
    for value in values:
        seen = boundary.seen(value)
        if seen is None:
            return f"it is not known what {value.name!r} may hold"
        known[value] = seen
    feeds: list[CutFeed] = []
    for number in range(boundary.probes + len(SPREADS)):
        rng = np.random.default_rng([*marks, number])
        turns = (_Turn(number, place) for place in range(len(known)))
        pairs = zip(known.items(), turns, strict=True)
        feeds.append({v: _draw(boundary, v, s, rng, t, reach) for (v, s), t in pairs})
    return tuple(feeds)


def _draw(
    boundary: Boundary,
    value: ir.Value,
    seen: tuple[Seen, ...],
    rng: np.random.Generator,
    turn: _Turn,
    reach: float,
) -> np.ndarray:
    fixed, extra = boundary.is_fixed(value), turn.feed - boundary.probes
    like = seen[min(turn.feed, len(seen) - 1)]
    if like.dtype == np.bool_ and like.sample.size == 1 and not fixed:
        return np.full(like.shape, _condition(turn))
    if extra < 0:
        return draw_like(like, rng, fixed=fixed)
    return draw_spread(like, rng, fixed=fixed, reach=reach, spread=SPREADS[extra])


def _condition(turn: _Turn) -> bool:
    """Take both branches: in four feeds, two conditions meet in every combination."""
    return (turn.feed >> (turn.place % 2)) & 1 == 0
