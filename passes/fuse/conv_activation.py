"""Conv -> MaxPool or Reshape -> Relu or Clip  becomes  Conv -> Relu or Clip -> MaxPool or Reshape.

Max pooling and a monotonic function commute, and so does whatever only moves elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, maybe, one_of, op
from optcc.passkit.rewrite import RewritePass, node_like, refuse
from passes.fuse.clip_bounds import bounds_of

__all__ = ["FuseConvActivation"]

_WEIGHTED = op(
    ("Conv", "ConvTranspose", "Gemm", "MatMul"), any_(), any_(), maybe(any_()), name="weighted"
)
_SUM = op("Add", _WEIGHTED, any_("addend"), name="sum")
_MOVERS = ("MaxPool", "Transpose", "Flatten", "Reshape", "Squeeze", "Unsqueeze")


class FuseConvActivation(RewritePass):
    """Bring an activation next to the node with weights, so that the two form one unit.

    A unit (Conv, ConvTranspose, Gemm or MatMul, the Add behind it, the activation) is what
    quantization keeps together and what runtimes run as one kernel.

    Keeps: the bits of every output; graph inputs and outputs, their names, types and shapes.
    """

    name = "fuse.conv-activation"
    exactness = Exactness.BITWISE
    pattern = op(
        ("Relu", "Clip"),
        op(_MOVERS, one_of(_WEIGHTED, _SUM), maybe(any_("how")), name="mover"),
        maybe(any_()),
        maybe(any_()),
    )

    def check(self, m: Match) -> None:
        """Refuse bounds that are not constant."""
        refuse(bounds_of(m.root) is None, "its bounds are not constant, or leave nothing")

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Rebuild the region with the activation below the mover."""
        weighted = node_like(m.node("weighted"), m.node("weighted").inputs).outputs[0]
        unit = weighted
        if m.has("sum"):
            old = m.node("weighted").outputs[0]
            inputs = [weighted if v is old else v for v in m.node("sum").inputs]
            unit = node_like(m.node("sum"), inputs).outputs[0]
        active = node_like(m.root, [unit, *m.root.inputs[1:]]).outputs[0]
        mover = m.node("mover")
        return node_like(mover, [active, *mover.inputs[1:]]).outputs

    def describe(self, m: Match) -> str:
        """Say what changed places."""
        return f"{m.root.op_type} moved before {m.node('mover').op_type}"
