"""x / sqrt(mean(x^2) + eps) * scale -> RMSNormalization, or the spelling that runtimes fuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, one_of, op, scalar
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse
from passes.fuse.channels import FLOATS
from passes.fuse.normalization import (
    epsilon_of,
    inverse_root,
    mean_of,
    over_root,
    refuse_other_axes,
    refuse_scale_behind,
    scale_of,
    trailing_sizes,
    with_constant,
    within_casts,
)

__all__ = ["FuseRmsNorm"]

_FIRST_OPSET = 23
_SPELLING = ("Add", "Div", "Pow", "ReduceMean", "Sqrt")

_x = any_("x")
_square = mean_of(one_of(op("Pow", _x, scalar(2.0)), op("Mul", _x, _x)))


class FuseRmsNorm(RewritePass):
    """Write a decomposed root-mean-square normalization in one way.

    From opset 23 on this is RMSNormalization. Before, it is Pow, ReduceMean, Add, Sqrt and Div,
    the only spelling that ONNX Runtime fuses by itself; see docs/decisions/rms-normalization.md.
    Casts and the scale behind such a Div stay as they are.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    """

    name = "fuse.rmsnorm"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = one_of(
        *over_root(_x, _square),
        op("Mul", _x, op("Mul", inverse_root(_square), const("scale"))),
    )

    def extended(self, m: Match) -> Match:
        """Take in the scale and the Casts around it, where there is an operator for all of it."""
        try:
            sizes = trailing_sizes(m)
        except Reject:
            return m
        if m.opset < _FIRST_OPSET or m.has("scale"):
            return m
        scaled = with_constant(m, "Mul", "scale", sizes)
        if scaled.has("scale"):
            return scaled
        return with_constant(within_casts(m), "Mul", "scale", sizes)

    def applies(self, m: Match) -> bool:
        """Take what is not spelled so already, and no layer normalization."""
        if _is_centred(m.value("x")):
            return False
        spelled = tuple(sorted(n.op_type for n in m.region)) == _SPELLING
        return m.opset >= _FIRST_OPSET or not spelled or m.has("late") or not m.has("eps")

    def check(self, m: Match) -> None:
        """Refuse other functions and axes, and types that the operator would narrow."""
        x = m.value("x")
        wrong = x.dtype not in FLOATS or x.dtype is ir.DataType.DOUBLE
        refuse(wrong, f"the type of {x.name!r} is not float32 or narrower")
        epsilon_of(m)
        sizes = trailing_sizes(m)
        if m.has("scale"):
            refuse_other_axes(m.value("scale"), x, sizes)
        refuse_scale_behind(m, sizes)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the RMSNormalization, or its five parts."""
        sizes = trailing_sizes(m)
        if m.opset < _FIRST_OPSET:
            return _spelled(m, graph, len(sizes))
        attributes = {
            "axis": ir.AttrInt64("axis", -len(sizes)),
            "epsilon": ir.AttrFloat32("epsilon", epsilon_of(m)),
        }
        inputs = [m.value("x"), scale_of(m, graph, sizes)]
        new = node_like(m.root, inputs, op_type="RMSNormalization", attributes=attributes)
        return new.outputs


def _is_centred(x: ir.Value) -> bool:
    node = x.producer()
    read = () if node is None or node.op_type != "Sub" else node.inputs
    producers = (None if v is None else v.producer() for v in read)
    return any(p is not None and p.op_type == "ReduceMean" for p in producers)


def _spelled(m: Match, graph: ir.Graph, axes: int) -> Sequence[ir.Value]:
    x, stem = m.value("x"), m.outputs[0].name
    mean = next(n for n in m.region if n.op_type == "ReduceMean")
    two = add_constant(graph, f"{stem}.two", np.array(2, m.array("eps").dtype))
    square = ir.Node("", "Pow", [x, two])
    taken = node_like(mean, [square.outputs[0], *mean.inputs[1:]])
    spread = ir.Node("", "Add", [taken.outputs[0], m.value("eps")])
    root = ir.Node("", "Sqrt", [spread.outputs[0]])
    if not m.has("scale"):
        return node_like(m.root, [x, root.outputs[0]], op_type="Div", attributes={}).outputs
    ratio = ir.Node("", "Div", [x, root.outputs[0]])
    return node_like(m.root, [ratio.outputs[0], m.value("scale")]).outputs
