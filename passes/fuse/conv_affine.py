"""Conv +, -, * or / one constant per output channel -> Conv.

s * (conv(x, w) + b) + t = conv(x, w * s) + (b * s + t)
"""

from __future__ import annotations

import numpy as np

from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, maybe, op
from passes.fuse.affine import AffineFold, scale_and_shift_of
from passes.fuse.channels import narrow, output_channels, scale_kernel

__all__ = ["FuseConvAffine"]


class FuseConvAffine(AffineFold):
    """Fold arithmetic with a constant per output channel into Conv or ConvTranspose.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    A constant that varies over anything but the channels is left alone.
    """

    name = "fuse.conv-affine"
    pattern = op(
        ("Add", "Sub", "Mul", "Div"),
        op(("Conv", "ConvTranspose"), any_("x"), const("w"), maybe(const("b")), name="weighted"),
        const("k"),
    )

    def folded(self, m: Match) -> tuple[np.ndarray | None, np.ndarray]:
        """Scale output channels; see `AffineFold.folded`."""
        conv, w, b = m.node("weighted"), m.array("w"), m.optional_array("b")
        channels = output_channels(conv, w.shape)
        scale, shift = scale_and_shift_of(m, m.root, rank=w.ndim, axis=1, channels=channels)
        old = np.zeros(channels) if b is None else b.astype(np.float64)
        bias = narrow(old * (1.0 if scale is None else scale) + shift, w, "bias")
        if scale is None:
            return None, bias
        return narrow(scale_kernel(conv, w, scale), w, "weight"), bias
