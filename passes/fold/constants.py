"""Nodes whose inputs are all constants -> their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.graph.edit import constant_of, is_constant, needs_identity, replace_node
from optcc.graph.walk import subgraphs_of
from optcc.passkit.contract import (
    Exactness,
    Fact,
    PassContext,
    PassResult,
    Rejection,
    Rewrite,
)
from optcc.passkit.rewrite import Reject
from passes.eliminate.sameness import RANDOM_OPS
from passes.fold.output_size import predicted_bytes
from passes.fold.store import store_results

__all__ = ["FoldConstants"]

_KEPT = frozenset({"Constant", "DequantizeLinear", "Dropout"})
"""Never folded: constants themselves, narrow weights, and what may be random."""


class FoldConstants:
    """Compute constant nodes in the reference runtime and store what they give.

    A result may be larger than the inputs that only this node reads by `ctx.fold_limit_bytes` at
    most, so that an Expand or Tile never blows the file up. Random operators, DequantizeLinear
    (a narrow weight stays narrow) and nodes with subgraphs are left alone.

    Keeps: every value and the names of graph outputs. Chains of fp16 nodes may round more often
    than a runtime that computes them in fp32.
    """

    name = "fold.constants"
    exactness = Exactness.ROUNDING
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Fold in graph order, so that chains fold in one run."""
        result = PassResult()
        opsets = model.opset_imports
        for graph in list(model.graphs()):
            for node in list(graph):
                if node.graph is graph and _is_foldable(node):
                    self._fold(graph, node, opsets, ctx, result)
        return result

    def _fold(
        self,
        graph: ir.Graph,
        node: ir.Node,
        opsets: Mapping[str, int],
        ctx: PassContext,
        result: PassResult,
    ) -> None:
        wanted = [v for v in node.outputs if v.uses() or v.is_graph_output()]
        if not wanted:
            return
        if node.op_type == "Identity":
            self._forward(graph, node, ctx, result)
            return
        try:
            arrays = _evaluate(node, opsets, ctx)
        except Reject as reject:
            result.rejects.append(Rejection(node.name or "", str(reject)))
            return
        kept = {v: arrays[v] for v in wanted}
        record = Rewrite(node.name or "", f"{node.op_type} of constants", (), tuple(wanted))
        if ctx.apply(record, lambda: store_results(graph, node, kept, self.name)):
            result.rewrites.append(record)

    def _forward(
        self, graph: ir.Graph, node: ir.Node, ctx: PassContext, result: PassResult
    ) -> None:
        """Let readers of an Identity read the constant; one that names an output stays."""
        old, constant = node.outputs[0], node.inputs[0]
        if constant is None or needs_identity(graph, old, constant):
            return
        record = Rewrite(node.name or "", "Identity of a constant", (), (old,))
        if ctx.apply(record, lambda: replace_node(graph, [node], [], [old], [constant])):
            result.rewrites.append(record)


def _is_foldable(node: ir.Node) -> bool:
    if node.domain != "" or node.op_type in _KEPT or node.op_type in RANDOM_OPS:
        return False
    present = [v for v in node.inputs if v is not None]
    if subgraphs_of(node) or any(a.is_ref() for a in node.attributes.values()):
        return False
    return bool(present) and all(is_constant(v) for v in present) and _holds_tensors(node)


def _holds_tensors(node: ir.Node) -> bool:
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    return all(
        isinstance(v.type, ir.TensorType | None) and v.dtype != ir.DataType.STRING for v in values
    )


def _evaluate(
    node: ir.Node, opsets: Mapping[str, int], ctx: PassContext
) -> dict[ir.Value, np.ndarray]:
    """Run the node.

    Raises:
        Reject: The result is too large, undefined, or beyond the runtime.
    """
    limit = _freed_bytes(node) + ctx.fold_limit_bytes
    size = predicted_bytes(node)
    if size is None:
        raise Reject(f"the size of {node.outputs[0].name!r} is not known in advance")
    if size > limit:
        raise Reject(f"the result has {size} bytes, {limit} are allowed")
    inputs = [constant_of(v) for v in node.inputs]
    _refuse_division_by_zero(node, inputs)
    try:
        arrays = ctx.evaluate(_detached(node, opsets), inputs)
    except BackendError as error:
        raise Reject(f"the runtime cannot compute it: {error.what}") from error
    named = [v for v in node.outputs if v.name]
    for value, array in zip(named, arrays, strict=True):
        if value.dtype is not None and ir.tensor(array).dtype != value.dtype:
            raise Reject(f"the runtime gives {array.dtype} for {value.dtype.name}")
    if sum(a.nbytes for a in arrays) > limit:
        raise Reject(f"the result has {sum(a.nbytes for a in arrays)} bytes, {limit} are allowed")
    return dict(zip(named, arrays, strict=True))


def _detached(node: ir.Node, opsets: Mapping[str, int]) -> ir.Node:
    """Copy the node into a graph that knows the opsets; a nested graph does not."""
    copy = ir.Node(
        node.domain,
        node.op_type,
        [None] * len(node.inputs),
        node.attributes.values(),
        num_outputs=len(node.outputs),
        name=node.name,
    )
    for new, old in zip(copy.outputs, node.outputs, strict=True):
        new.name = old.name
    ir.Graph([], [], nodes=[copy], opset_imports=dict(opsets))
    return copy


def _freed_bytes(node: ir.Node) -> int:
    """Return the size of the inputs that disappear with the node."""
    freed = 0
    for value in dict.fromkeys(v for v in node.inputs if v is not None):
        alone = all(use.node is node for use in value.uses()) and not value.is_graph_output()
        tensor = value.const_value
        if alone and tensor is not None:
            freed += tensor.nbytes
    return freed


def _refuse_division_by_zero(node: ir.Node, inputs: Sequence[np.ndarray | None]) -> None:
    """An integer division by zero would end the process that runs it."""
    divisor = inputs[1] if node.op_type in ("Div", "Mod") else None
    if divisor is not None and divisor.dtype.kind in "iu" and not divisor.all():
        raise Reject("it divides an integer by zero")
