"""Passes that take different things for the same."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant, replace_node
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite
from optcc.passkit.rewrite import Reject
from passes.fuse.projection import Projection, projection_at
from passes.fuse.qkv import FuseQkv
from tests.verify.wrong_passes.faulty import constant

__all__ = ["MergedDuplicates", "MergedProducts", "StaleConstants"]

_NO_FACTS: frozenset[Fact] = frozenset()


class MergedProducts(FuseQkv):
    """Merges products of different values as if they read the first one's."""

    name = "wrong.qkv-of-different-inputs"

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        families: dict[Hashable, list[Projection]] = {}
        for node in model.graph:
            try:
                found = projection_at(node)
            except Reject:
                continue
            if found is not None and found.output.uses():
                depth = constant_of(found.stored).shape[int(found.kind.transposes[1])]
                key = (found.kind, known_rank(found.x), depth)
                families.setdefault(key, []).append(found)
        for members in families.values():
            if len({p.x for p in members}) > 1:
                self._merge(model.graph, members, ctx, result)
        return result


class MergedDuplicates:
    """Takes nodes for equal that differ in an attribute or in a constant."""

    name = "wrong.duplicates-attribute-ignored"
    exactness = Exactness.BITWISE
    needs = gives = breaks = _NO_FACTS

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        known: dict[Hashable, ir.Node] = {}
        for node in list(model.graph):
            if node.op_type not in ("Transpose", "Gemm", "Cast", "Clip", "Gather", "ReduceSum"):
                continue
            reads = tuple(v for v in node.inputs if v is not None and not is_constant(v))
            first = known.setdefault((node.op_type, reads), node)
            if first is not node and not node.outputs[0].is_graph_output():
                self._merge(model, first, node, ctx, result)
        return result

    @staticmethod
    def _merge(model, first: ir.Node, node: ir.Node, ctx: PassContext, result: PassResult) -> None:
        inputs = tuple(v for v in node.inputs if v is not None and not is_constant(v))
        record = Rewrite(node.name or "", "same as another", inputs, tuple(node.outputs))
        old, new = [node.outputs[0]], [first.outputs[0]]
        if ctx.apply(record, lambda: replace_node(model.graph, [node], [], old, new)):
            result.rewrites.append(record)


class StaleConstants:
    """Folds arithmetic on constants with what the pass computed for the first such node."""

    name = "wrong.constant-stale"
    exactness = Exactness.ROUNDING
    needs = gives = breaks = _NO_FACTS

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        for node in list(model.graph):
            arrays = [constant_of(v) for v in node.inputs]
            if node.op_type in ("Mul", "Add") and all(a is not None for a in arrays):
                self._fold(model, node, arrays, ctx, result)
        return result

    @staticmethod
    def _fold(model, node: ir.Node, arrays, ctx: PassContext, result: PassResult) -> None:
        stale = np.broadcast_to(arrays[0], np.broadcast_shapes(*(a.shape for a in arrays))).copy()
        record = Rewrite(node.name or "", "folded", (), tuple(node.outputs))

        def write():
            new = constant(model.graph, stale)
            return replace_node(model.graph, [node], [], list(node.outputs), [new])

        if ctx.apply(record, write):
            result.rewrites.append(record)
