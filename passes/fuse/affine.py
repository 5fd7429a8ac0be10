"""Arithmetic with a constant, as one scale and one shift per channel, folded into what it reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse
from passes.fuse.channels import FLOATS, per_channel

__all__ = ["AffineFold", "scale_and_shift_of"]


class AffineFold(RewritePass):
    """The base of folds of +, -, * or / by a constant into a weighted node.

    The pattern binds the weighted node as `weighted`, its data and weight as `x` and `w`, and the
    constant as `k`.
    """

    exactness = Exactness.ROUNDING

    @abstractmethod
    def folded(self, m: Match) -> tuple[np.ndarray | None, np.ndarray]:
        """Compute the weight, None where it stays, and the bias.

        Raises:
            Reject: The constant is not per channel, or a result does not fit the type.
        """

    def attributes(self, m: Match) -> dict[str, ir.Attr]:
        """Return those of the new node; those of the old one by default."""
        return dict(m.node("weighted").attributes)

    def check(self, m: Match) -> None:
        """Refuse other types, shared weights and constants that are not per channel."""
        w = m.value("w")
        refuse(w.dtype not in FLOATS, f"{w.name!r} is not of a float type")
        scales = m.root.op_type in ("Mul", "Div")
        refuse(scales and len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the node with the folded numbers; an unscaled weight is used as it is."""
        weight, bias = self.folded(m)
        name, w = m.outputs[0].name, m.value("w")
        if weight is not None:
            w = add_constant(graph, f"{name}.weight", weight)
        inputs = [m.value("x"), w, add_constant(graph, f"{name}.bias", bias)]
        return node_like(m.node("weighted"), inputs, attributes=self.attributes(m)).outputs


def scale_and_shift_of(
    m: Match, node: ir.Node, *, rank: int, axis: int, channels: int
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return s (None when it is 1) and t of node(v, k) = s * v + t, each [channels] in float64.

    Args:
        m: Binds the constant `k`, the second operand.
        node: Add, Sub, Mul or Div.
        rank: Of the value v.
        axis: Channel axis of v.
        channels: Size of that axis.

    Raises:
        Reject: The constant varies over more than the channels, or divides by zero.
    """
    vector = per_channel(m.array("k"), rank, axis, channels)
    if vector is None:
        raise Reject(f"constant {m.value('k').name!r} is not one number per output channel")
    kind = node.op_type
    if kind in ("Add", "Sub"):
        return None, vector if kind == "Add" else -vector
    if kind == "Mul":
        return vector, np.zeros(channels)
    if not vector.all():
        raise Reject(f"constant {m.value('k').name!r} holds a zero to divide by")
    return 1.0 / vector, np.zeros(channels)
