"""Conv +, -, * or / one constant per output channel -> Conv.

s * (conv(x, w) + b) + t = conv(x, w * s) + (b * s + t)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, maybe, op
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.affine import scale_and_shift_of
from passes.fuse.channels import FLOATS, narrow, output_channels, scale_kernel

__all__ = ["FuseConvAffine"]


class FuseConvAffine(RewritePass):
    """Fold arithmetic with a constant per output channel into Conv or ConvTranspose.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    A constant that varies over anything but the channels is left alone.
    """

    name = "fuse.conv-affine"
    exactness = Exactness.ROUNDING
    pattern = op(
        ("Add", "Sub", "Mul", "Div"),
        op(("Conv", "ConvTranspose"), any_("x"), const("w"), maybe(const("b")), name="conv"),
        const("k"),
    )

    def check(self, m: Match) -> None:
        """Refuse other types, shared weights and constants that are not per channel."""
        w = m.value("w")
        refuse(w.dtype not in FLOATS, f"{w.name!r} is not of a float type")
        scales = m.root.op_type in ("Mul", "Div")
        refuse(scales and len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make a Conv with the folded numbers; an unscaled weight is used as it is."""
        weight, bias = self.folded(m)
        name, w = m.outputs[0].name, m.value("w")
        if weight is not None:
            w = add_constant(graph, f"{name}.weight", weight)
        b = add_constant(graph, f"{name}.bias", bias)
        return node_like(m.node("conv"), [m.value("x"), w, b]).outputs

    def folded(self, m: Match) -> tuple[np.ndarray | None, np.ndarray]:
        """Compute the weight, None where it stays, and the bias.

        Raises:
            Reject: The constant is not per channel, or a result does not fit the type.
        """
        conv, w, b = m.node("conv"), m.array("w"), m.optional_array("b")
        channels = output_channels(conv, w.shape)
        scale, shift = scale_and_shift_of(m, rank=w.ndim, axis=1, channels=channels)
        old = np.zeros(channels) if b is None else b.astype(np.float64)
        bias = narrow(old * (1.0 if scale is None else scale) + shift, w, "bias")
        if scale is None:
            return None, bias
        return narrow(scale_kernel(conv, w, scale), w, "weight"), bias
