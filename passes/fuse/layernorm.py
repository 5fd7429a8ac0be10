"""(x - mean) / sqrt(mean of squares + eps) * scale + bias -> LayerNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, is_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, one_of, op, scalar
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse
from passes.fuse.channels import FLOATS
from passes.fuse.normalization import (
    cast_type,
    epsilon_of,
    fitting,
    inverse_root,
    mean_of,
    over_root,
    scale_of,
    sole_reader,
    trailing_sizes,
    with_constant,
)

__all__ = ["FuseLayerNorm"]

_FIRST_OPSET = 17
_HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

_x = any_("x")
_mean = mean_of(_x)
_centred = op("Sub", _x, _mean)
_turned = op("Sub", _mean, _x)
_square = one_of(
    op("Pow", one_of(_centred, _turned), scalar(2.0)),
    op("Mul", _centred, _centred),
    op("Mul", _turned, _turned),
)
_variance = mean_of(_square)
_gain = op("Mul", inverse_root(_variance), const("scale"))


class FuseLayerNorm(RewritePass):
    """Write a decomposed layer normalization as LayerNormalization, with what scales it after.

    The axes must be the last ones. Without a scale, the new node gets one of ones. Casts from half
    precision to float and back vanish where scale and bias follow the second one: this is what
    the operator does by itself (stash_type 1). Other Casts stay.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function. In
    half precision without Casts the result is more accurate than it was.
    """

    name = "fuse.layernorm"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    pattern = one_of(
        *over_root(_centred, _variance),
        op("Mul", _centred, _gain),
        # x * gain + (bias - mean * gain)
        op("Add", op("Mul", _x, _gain), op("Sub", const("bias"), op("Mul", _mean, _gain))),
    )

    def extended(self, m: Match) -> Match:
        """Take in scale, bias, and the Casts around it."""
        try:
            sizes = trailing_sizes(m)
        except Reject:
            return m
        wide = _with_scale_and_bias(m, sizes)
        if wide.root is not m.root or m.has("scale"):
            return wide
        return _with_scale_and_bias(_within_casts(m), sizes)

    def check(self, m: Match) -> None:
        """Refuse other functions and axes, and types that the operator would narrow."""
        x = m.value("x")
        refuse(m.opset < _FIRST_OPSET, f"opset {m.opset} has no LayerNormalization")
        wrong = x.dtype not in FLOATS or x.dtype is ir.DataType.DOUBLE
        refuse(wrong, f"the type of {x.name!r} is not float32 or narrower")
        epsilon_of(m)
        sizes = trailing_sizes(m)
        for name in ("scale", "bias"):
            if m.has(name):
                _refuse_other_axes(m.value(name), x, sizes)
        _refuse_scale_behind(m, sizes)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the LayerNormalization."""
        sizes, dtype = trailing_sizes(m), m.value("x").dtype
        assert dtype is not None
        scale = scale_of(m, "scale", graph, sizes, "scale")
        if scale is None:
            ones = np.ones(sizes, dtype.numpy())
            scale = add_constant(graph, f"{m.outputs[0].name}.scale", ones)
        bias = scale_of(m, "bias", graph, sizes, "bias")
        attributes = {
            "axis": ir.AttrInt64("axis", -len(sizes)),
            "epsilon": ir.AttrFloat32("epsilon", epsilon_of(m)),
        }
        inputs = [m.value("x"), scale, bias]
        new = node_like(m.root, inputs, op_type="LayerNormalization", attributes=attributes)
        return new.outputs


def _with_scale_and_bias(m: Match, sizes: Sequence[int]) -> Match:
    if m.has("bias"):
        return m
    scaled = m if m.has("scale") else with_constant(m, "Mul", "scale", sizes)
    return with_constant(scaled, "Add", "bias", sizes)


def _within_casts(m: Match) -> Match:
    """Take in a Cast of x to float and one of the result back to the type that x had."""
    widen, narrow = m.value("x").producer(), sole_reader(m.root)
    before = None if widen is None else widen.inputs[0]
    if widen is None or before is None or narrow is None:
        return m
    fits = before.dtype in _HALVES and cast_type(narrow) is before.dtype
    if not fits or cast_type(widen) is not ir.DataType.FLOAT or widen.graph is not m.root.graph:
        return m
    inside = set(m.region)
    if any(u.node not in inside for u in widen.outputs[0].uses()):
        return m
    region = (widen, *m.region, narrow)
    return replace(m, root=narrow, values={**m.values, "x": before}, region=region)


def _refuse_other_axes(value: ir.Value, x: ir.Value, sizes: Sequence[int]) -> None:
    fits = fitting(value, known_rank(x) or 0, sizes)
    refuse(not fits, f"constant {value.name!r} varies over axes that are not averaged")


def _refuse_scale_behind(m: Match, sizes: Sequence[int]) -> None:
    """Refuse what an instance normalization does: one scale per channel, means over the rest."""
    reader = sole_reader(m.root)
    if m.has("scale") or reader is None or reader.op_type != "Mul":
        return
    for value in reader.inputs:
        if value is not None and is_constant(value):
            _refuse_other_axes(value, m.value("x"), sizes)
