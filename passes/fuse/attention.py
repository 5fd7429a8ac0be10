"""Scaled-dot-product attention -> one spelling: MatMul(scale * Q, K^T), mask, Softmax, MatMul.

(a * Q) @ (b * K)^T * c = (a * b * c * Q) @ K^T
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, fresh_name, is_constant, remove_nodes
from optcc.passkit.contract import (
    Exactness,
    Fact,
    PassContext,
    PassResult,
    Rejection,
    Rewrite,
)
from optcc.passkit.rewrite import (
    Reject,
    default_opset,
    drop_unused_constants,
    node_like,
    refuse,
    sign_nodes,
)
from passes.fuse.attention_core import Core, core_at, is_finite
from passes.fuse.attention_factors import Factor, repeats_heads

__all__ = ["FuseAttention"]

_FIRST_OPSET = 13


class FuseAttention:
    """Find every attention core, and put its scales as one factor on Q, before the product.

    Scales on Q, on K, on both or on the scores become one Mul. What puts 0 for probabilities that
    are no numbers goes where a finite mask cannot give any. Masks stay as they are, added or chosen
    by a Where: the two differ in rows that are masked as a whole. So do K and V that are repeated
    for grouped heads.

    Keeps: graph inputs and outputs, their names, types and shapes; the real-valued function.
    A core that needs no change is recorded as such.
    """

    name = "fuse.attention"
    exactness = Exactness.ROUNDING
    needs: frozenset[Fact] = frozenset({Fact.SHAPES})
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Visit the products of probabilities and V, in graph order."""
        result = PassResult()
        if default_opset(model) < _FIRST_OPSET:
            return result
        for graph in list(model.graphs()):
            for node in list(graph):
                try:
                    self._visit(graph, node, ctx, result)
                except Reject as reason:
                    result.rejects.append(Rejection(node.name or "", str(reason)))
        return result

    def _visit(self, graph: ir.Graph, node: ir.Node, ctx: PassContext, result: PassResult) -> None:
        core = core_at(node)
        if core is None:
            return
        moves, drops = _moves_scale(core), _drops_guard(core)
        refuse(not moves and not drops, f"{_words(core)} is in the normal form already")
        number = self.scale(core)
        _refuse_number(core, number)
        record = Rewrite(
            node.name or "", _told(core, moves, drops), _inputs(core), (node.outputs[0],)
        )

        def action() -> Sequence[ir.Value]:
            if moves:
                _move_scale(graph, core, number, self.name)
            if drops:
                _drop_guard(graph, core)
            return [node.outputs[0]]

        if ctx.apply(record, action):
            result.rewrites.append(record)

    def scale(self, core: Core) -> float:
        """Return the one factor that stands for all."""
        return math.prod(f.number for f in core.factors)


def _moves_scale(core: Core) -> bool:
    if core.on_scores or core.on_k:
        return True
    return len(core.on_q) > 1 or any(f.node.op_type == "Div" for f in core.on_q)


def _drops_guard(core: Core) -> bool:
    """Tell whether all scores are finite, so that no probability is other than a number."""
    wheres = {n for n in core.steps if n.op_type == "Where"}
    fills = [v for n in wheres for v in n.inputs[1:] if is_constant(v)]
    added = [
        v for n in core.steps if n.op_type in ("Add", "Sub") for v in n.inputs if v in core.masks
    ]
    return core.guard is not None and all(is_finite(v) for v in (*fills, *added))


def _refuse_number(core: Core, number: float) -> None:
    q = core.product.inputs[0]
    assert q is not None
    dtype = (q.dtype or ir.DataType.FLOAT).numpy()
    with np.errstate(over="ignore", under="ignore"):
        narrow = np.array(number).astype(dtype)
    fits = bool(np.isfinite(narrow)) and bool(narrow != 0)
    refuse(not fits, f"its scale {number:g} does not fit {dtype}")


def _words(core: Core) -> str:
    kinds = {"Where": "chosen", "Add": "added", "Sub": "subtracted"}
    masks = [kinds[n.op_type] for n in core.steps if n.op_type in kinds]
    mask = f"mask {' and '.join(masks)}" if masks else "no mask"
    k = core.product.inputs[1]
    grouped = ", grouped heads" if k is not None and repeats_heads(k) else ""
    return f"attention ({mask}{grouped})"


def _told(core: Core, moves: bool, drops: bool) -> str:
    found = (("Q", core.on_q), ("K", core.on_k), ("scores", core.on_scores))
    changes = [f"scale of {' and '.join(n for n, f in found if f)} as one on Q"] if moves else []
    if drops:
        changes.append("guard against NaN removed")
    return f"{_words(core)}: {', '.join(changes)}"


def _inputs(core: Core) -> tuple[ir.Value, ...]:
    q, k = core.product.inputs
    ends = [found[-1].data if found else v for found, v in ((core.on_q, q), (core.on_k, k))]
    values = [*ends, *core.masks, core.root.inputs[1]]
    return tuple(v for v in dict.fromkeys(values) if v is not None and not is_constant(v))


def _move_scale(graph: ir.Graph, core: Core, number: float, name: str) -> None:
    constants = [v for f in core.factors for v in f.node.inputs]
    for factor in core.factors:
        factor.node.outputs[0].replace_all_uses_with(_data(factor))
        remove_nodes(graph, [factor.node])
    drop_unused_constants(constants)
    q = core.product.inputs[0]
    assert q is not None
    if number == 1.0:
        return
    dtype = (q.dtype or ir.DataType.FLOAT).numpy()
    constant = add_constant(graph, f"{q.name}.scale", np.array(number, dtype))
    mul = node_like(core.factors[0].node, [q, constant], op_type="Mul", attributes={})
    mul.outputs[0].name = fresh_name(graph, f"{q.name}.scaled")
    mul.outputs[0].type, mul.outputs[0].shape = q.type, q.shape and q.shape.copy()
    sign_nodes([mul], name)
    graph.insert_before(core.product, mul)
    core.product.replace_input_with(0, mul.outputs[0])


def _data(factor: Factor) -> ir.Value:
    """Return what the node scales now: an earlier step may have been taken out."""
    value = factor.node.inputs[1 if is_constant(factor.node.inputs[0]) else 0]
    assert value is not None
    return value


def _drop_guard(graph: ir.Graph, core: Core) -> None:
    guard = core.guard
    assert guard is not None
    condition, zero, kept = guard.inputs
    assert condition is not None
    assert kept is not None
    test = condition.producer()
    guard.outputs[0].replace_all_uses_with(kept)
    remove_nodes(graph, [guard])
    if test is not None and not condition.uses() and not condition.is_graph_output():
        remove_nodes(graph, [test])
    drop_unused_constants([zero])
