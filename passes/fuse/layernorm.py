"""(x - mean) / sqrt(mean of squares + eps) * scale + bias -> LayerNormalization."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

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
    sized,
    trailing_sizes,
    with_constant,
    within_casts,
)

__all__ = ["FuseLayerNorm"]

_FIRST_OPSET = 17

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
        return _with_scale_and_bias(within_casts(m), sizes)

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
                refuse_other_axes(m.value(name), x, sizes)
        refuse_scale_behind(m, sizes)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the LayerNormalization."""
        sizes = trailing_sizes(m)
        scale = scale_of(m, graph, sizes)
        bias = sized(m, "bias", graph, sizes) if m.has("bias") else None
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
