"""Pad with zeros + Conv or AveragePool -> the same with larger pads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, maybe, op
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse

__all__ = ["FusePad"]


class FusePad(RewritePass):
    """Let a Conv or AveragePool do the padding with zeros that a Pad does before it.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    Left alone: modes other than constant, other numbers than 0, negative pads (they crop), pads of
    batch or channels, and pools that do not count the padding.
    """

    name = "fuse.pad"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = op(
        ("Conv", "AveragePool"),
        op("Pad", any_("x"), any_("pads"), maybe(any_("number")), maybe(any_("axes")), name="pad"),
        maybe(any_("w")),
        maybe(any_("b")),
    )

    def check(self, m: Match) -> None:
        """Refuse what is no zero padding of spatial dims, and what cannot take it over."""
        mode = m.node("pad").attributes.get_string("mode", "constant")
        refuse(mode != "constant", f"the mode of the Pad is {mode!r}")
        _refuse_other_numbers(m)
        auto = m.root.attributes.get_string("auto_pad", "NOTSET")
        refuse(auto not in ("NOTSET", "VALID"), f"auto_pad is {auto!r}")
        pads = _merged(m)
        if m.root.op_type == "AveragePool":
            _refuse_pool(m, pads)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the node with the sum of both pads."""
        attributes = {k: a for k, a in m.root.attributes.items() if k not in ("auto_pad", "pads")}
        attributes["pads"] = ir.AttrInt64s("pads", _merged(m))
        if m.root.op_type == "AveragePool":
            attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
        inputs = [m.value("x"), *m.root.inputs[1:]]
        return node_like(m.root, inputs, attributes=attributes).outputs


def _refuse_other_numbers(m: Match) -> None:
    if not m.has("number"):
        return
    number = constant_of(m.value("number"))
    if number is None or number.size != 1 or number.any():
        raise Reject(f"it pads with {m.value('number').name!r}, not with 0")


def _merged(m: Match) -> list[int]:
    """Return begin and end of every spatial dim, those of both nodes added.

    Raises:
        Reject: The Pad is not constant, crops, or is not about spatial dims alone.
    """
    pads, rank = constant_of(m.value("pads")), _rank(m)
    if pads is None or rank is None:
        raise Reject("the pads are not constant" if pads is None else "the rank is unknown")
    begins, ends = np.split(pads.reshape(-1), 2)
    refuse(bool((pads < 0).any()), "a negative pad crops")
    total = _own_pads(m.root, rank - 2)
    for axis, begin, end in zip(_axes(m, len(begins), rank), begins, ends, strict=True):
        refuse(axis < 2 and bool(begin or end), f"axis {axis} is padded")
        if axis >= 2:
            total[axis - 2] += int(begin)
            total[axis - 2 + rank - 2] += int(end)
    return total


def _rank(m: Match) -> int | None:
    return known_rank(m.value("w") if m.root.op_type == "Conv" else m.value("x"))


def _axes(m: Match, count: int, rank: int) -> list[int]:
    if not m.has("axes"):
        return list(range(count))
    axes = constant_of(m.value("axes"))
    if axes is None:
        raise Reject("the axes of the Pad are not constant")
    return [int(a) % rank for a in axes.reshape(-1)]


def _own_pads(node: ir.Node, spatial: int) -> list[int]:
    own = node.attributes.get_ints("pads")
    return [0] * (2 * spatial) if own is None else list(own)


def _refuse_pool(m: Match, pads: list[int]) -> None:
    attributes = m.root.attributes
    refuse(bool(attributes.get_int("ceil_mode", 0)), "ceil_mode places windows by the padding")
    kernel = attributes.get_ints("kernel_shape") or ()
    own = _own_pads(m.root, len(kernel))
    uncounted = not attributes.get_int("count_include_pad", 0) and any(own)
    refuse(uncounted, "the pool leaves its own padding out of the mean")
    refuse(any(p >= k for p, k in zip(pads, [*kernel, *kernel], strict=True)), "pads reach kernel")
