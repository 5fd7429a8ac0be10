"""Passes that take different things for the same."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant, replace_node
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite
from passes.fuse import sibling_matmul
from tests.verify.wrong_passes.faulty import constant

__all__ = ["MergedDuplicates", "MergedProducts", "StaleConstants"]

_NO_FACTS: frozenset[Fact] = frozenset()


class MergedProducts:
    """Merges products of different values as if they read the first one's."""

    name = "wrong.qkv-of-different-inputs"
    exactness = Exactness.ROUNDING
    needs = gives = breaks = _NO_FACTS

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        families: dict[Hashable, list[ir.Node]] = {}
        for node in model.graph:
            key = self._family(node)
            if key is not None:
                families.setdefault(key, []).append(node)
        for nodes in families.values():
            if len({n.inputs[0] for n in nodes}) > 1:
                sibling_matmul._merge(model.graph, nodes, ctx, result, self.name)
        return result

    @staticmethod
    def _family(node: ir.Node) -> Hashable | None:
        if node.op_type != "MatMul" or not is_constant(node.inputs[1]):
            return None
        w = constant_of(node.inputs[1])
        alone = len(node.inputs[1].uses()) == 1 and w is not None and w.ndim == 2
        return (known_rank(node.inputs[0]), w.shape[0], str(w.dtype)) if alone else None


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
