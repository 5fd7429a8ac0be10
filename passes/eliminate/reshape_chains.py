"""Reshape, Squeeze, Unsqueeze or Flatten of one another -> one Reshape, or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, needs_identity
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, maybe, op
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse

__all__ = ["EliminateReshapeChains"]

_KINDS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


class EliminateReshapeChains(RewritePass):
    """Write the dims that two operators in a row leave as the target of one Reshape.

    At most one of these dims may be open; it is written -1. The dims of a graph output are those
    that a file declares and may lie, so there only the constant target of a Reshape is read.

    Keeps: the bits of the result for all sizes of dynamic dims.
    """

    name = "eliminate.reshape-chains"
    exactness = Exactness.BITWISE
    needs = frozenset({Fact.SHAPES})
    pattern = op(
        _KINDS,
        op(_KINDS, any_("x"), maybe(any_("inner")), name="first"),
        maybe(any_("outer")),
    )

    def check(self, m: Match) -> None:
        """Refuse where more than one dim is open, or where 0 or -1 would mean something else."""
        _target(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the Reshape; read x itself where its dims are the same."""
        x, target = m.value("x"), _target(m)
        same = x.shape is not None and list(x.shape) == target
        if same and not needs_identity(graph, m.outputs[0], x):
            return [x]
        dims = add_constant(graph, f"{m.outputs[0].name}.shape", np.array(target, np.int64))
        return node_like(m.root, [x, dims], op_type="Reshape", attributes={}).outputs


def _target(m: Match) -> list[int]:
    """Return the dims of the result, -1 for the one that is open.

    Raises:
        Reject: They are unknown, more than one is open, or one is 0.
    """
    dims = _written(m.root) or _inferred(m.root.outputs[0])
    if dims is None:
        raise Reject("the dims of the result are not known")
    refuse(dims.count(None) > 1, "more than one dim of the result is open")
    refuse(0 in dims, "a dim of the result is 0")
    return [-1 if d is None else d for d in dims]


def _written(node: ir.Node) -> list[int | None] | None:
    """Return the target of a Reshape, unless it copies dims."""
    target = constant_of(node.inputs[1]) if node.op_type == "Reshape" else None
    if target is None or (target == 0).any():
        return None
    return [None if d < 0 else int(d) for d in target]


def _inferred(value: ir.Value) -> list[int | None] | None:
    if value.shape is None or value.is_graph_output():
        return None
    return [d if isinstance(d, int) else None for d in value.shape]
