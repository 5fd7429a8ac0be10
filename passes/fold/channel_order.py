"""Channels put into another order, then Conv -> Conv with its weight in that order.

RGB to BGR at the entry of a graph, above all: a Gather of constant indices over axis 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, maybe, one_of, op
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse

__all__ = ["FoldChannelOrder"]


class FoldChannelOrder(RewritePass):
    """Let a Conv read the channels in the order in which they come.

    Keeps: graph inputs and outputs, their names, types and shapes; every product. Only the order
    of a sum may change.
    """

    name = "fold.channel-order"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = op(
        "Conv",
        one_of(
            op("Gather", any_("x"), const("indices"), name="order"),
            op("Slice", any_("x"), const("starts"), const("ends"), const("axes"), const("steps")),
        ),
        const("w"),
        maybe(any_("b")),
    )

    def applies(self, m: Match) -> bool:
        """Take what moves along the channels."""
        return _axis(m) == 1

    def check(self, m: Match) -> None:
        """Refuse groups, shared weights, and what is no permutation."""
        w = m.value("w")
        refuse(m.root.attributes.get_int("group", 1) != 1, "the Conv has groups")
        refuse(len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        _order(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make a Conv whose weight is in the order of its data."""
        order = _order(m)
        weight = np.empty_like(m.array("w"))
        weight[:, order] = m.array("w")
        w = add_constant(graph, f"{m.outputs[0].name}.weight", weight)
        return node_like(m.root, [m.value("x"), w, *m.root.inputs[2:]]).outputs


def _axis(m: Match) -> int | None:
    rank = known_rank(m.value("x"))
    if rank is None:
        return None
    if m.has("order"):
        node = m.node("order")
        return node.attributes.get_int("axis", 0) % rank if m.array("indices").ndim == 1 else None
    axes = m.array("axes").reshape(-1)
    return int(axes[0]) % rank if len(axes) == 1 else None


def _order(m: Match) -> np.ndarray:
    """Return the channel of the data that each channel of the weight reads.

    Raises:
        Reject: Not every channel is read exactly once.
    """
    shape = m.value("x").shape
    channels = None if shape is None else shape[1]
    if not isinstance(channels, int):
        raise Reject("the number of channels is unknown")
    if m.has("order"):
        order = m.array("indices").astype(np.int64) % channels
    else:
        bounds = [int(m.array(k).reshape(-1)[0]) for k in ("starts", "ends", "steps")]
        order = _sliced(channels, *bounds)
    refuse(sorted(order.tolist()) != list(range(channels)), "it does not keep every channel")
    return order


def _sliced(channels: int, start: int, end: int, step: int) -> np.ndarray:
    """Return what Slice reads; an end far below 0 stands for the beginning."""
    refuse(step == 0, "its step is 0")
    numbers = np.arange(channels)
    first = start + channels if start < 0 else start
    last = end + channels if -channels <= end < 0 else end
    if step > 0:
        return numbers[max(first, 0) : max(last, 0) : step]
    first = min(first, channels - 1)
    return numbers[first::step] if last < 0 else numbers[first:last:step]
