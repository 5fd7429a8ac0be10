"""Conv + BatchNormalization -> Conv.

y = gamma * (conv(x, w) + b - mean) / sqrt(var + eps) + beta
  = conv(x, w * s) + (beta + (b - mean) * s)        with s = gamma / sqrt(var + eps)
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
from passes.fuse.batchnorm import PARAMETERS, scale_and_shift
from passes.fuse.channels import narrow, output_channels, scale_kernel

__all__ = ["FuseConvBatchNorm"]


class FuseConvBatchNorm(RewritePass):
    """Fold an inference BatchNormalization into the Conv or ConvTranspose that feeds it.

    The numbers are folded in float64, then rounded once to the type of the weight.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    Only float rounding changes.
    """

    name = "fuse.conv-batchnorm"
    exactness = Exactness.ROUNDING
    pattern = op(
        "BatchNormalization",
        op(("Conv", "ConvTranspose"), any_("x"), const("w"), maybe(const("b")), name="conv"),
        *(any_(name) for name in PARAMETERS),
    )

    def check(self, m: Match) -> None:
        """Refuse a weight that others need as it is, and numbers that cannot be folded."""
        w = m.value("w")
        refuse(len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make a Conv with the folded numbers."""
        weight, bias = self.folded(m)
        name = m.outputs[0].name
        w = add_constant(graph, f"{name}.weight", weight)
        b = add_constant(graph, f"{name}.bias", bias)
        return node_like(m.node("conv"), [m.value("x"), w, b]).outputs

    def folded(self, m: Match) -> tuple[np.ndarray, np.ndarray]:
        """Compute weight and bias of the new Conv.

        Raises:
            Reject: They cannot be computed, or do not fit the type of the weight.
        """
        conv, w, b = m.node("conv"), m.array("w"), m.optional_array("b")
        scale, shift = scale_and_shift(m, m.root)
        refuse(scale.shape != (output_channels(conv, w.shape),), "channel counts differ")
        bias = shift if b is None else shift + b.astype(np.float64) * scale
        return narrow(scale_kernel(conv, w, scale), w, "weight"), narrow(bias, w, "bias")
