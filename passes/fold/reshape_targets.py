"""Reshape to a computed shape that is known but for copied dims -> Reshape to a constant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, is_constant
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite
from optcc.passkit.rewrite import drop_unread, sign_nodes
from passes.fold.dim_values import Dim, DimTracer, Element

__all__ = ["FoldReshapeTargets"]


class FoldReshapeTargets:
    """Write the target of a Reshape as a constant.

    Each dim of the target must be a number, the same dim of the input (written 0), or the only
    one left open beside positive numbers (written -1).

    Keeps: the bits of the result for all sizes of dynamic dims. Names of dims that occur twice
    among the graph inputs are not trusted.
    """

    name = "fold.reshape-targets"
    exactness = Exactness.BITWISE
    needs = frozenset({Fact.SHAPES})
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Trace all nodes, then visit each Reshape."""
        result = PassResult()
        tracer = DimTracer(model)
        for graph in list(model.graphs()):
            for node in list(graph):
                target = _constant_target(node, tracer)
                if target is not None:
                    _apply(graph, node, target, tracer, ctx, result, self.name)
        return result


def _constant_target(node: ir.Node, tracer: DimTracer) -> list[int] | None:
    if node.op_type != "Reshape" or node.domain != "" or is_constant(node.inputs[1]):
        return None
    found = tracer.elements(node.inputs[1])
    literal_zero = bool(node.attributes.get_int("allowzero", 0))
    if found is None or found.rank != 1 or literal_zero:
        return None
    dims = [_written(k, item, node, tracer) for k, item in enumerate(found.items)]
    if None not in dims:
        return _numbers(dims)
    others = [d for d in dims if d is not None]
    alone = len(others) == len(dims) - 1 and all(d > 0 for d in others)
    return _numbers([-1 if d is None else d for d in dims]) if alone else None


def _numbers(dims: Sequence[int | None]) -> list[int]:
    return [d for d in dims if d is not None]


def _written(axis: int, item: Element, node: ir.Node, tracer: DimTracer) -> int | None:
    """Return how this dim is written in a constant target, or None when it is open."""
    if isinstance(item, int):
        return item
    data = node.inputs[0]
    if item is None or data is None or data.shape is None or axis >= data.shape.rank():
        return None
    own = tracer.dim(data, axis)
    return 0 if isinstance(own, Dim) and own.same_as(item) else None


def _apply(
    graph: ir.Graph,
    node: ir.Node,
    target: list[int],
    tracer: DimTracer,
    ctx: PassContext,
    result: PassResult,
    name: str,
) -> None:
    data, old = node.inputs[0], node.inputs[1]
    assert data is not None
    assert old is not None
    read = tuple(dict.fromkeys([data, *tracer.sources(old)]))
    record = Rewrite(node.name or "", f"Reshape to {target}", read, (node.outputs[0],))

    def write() -> Sequence[ir.Value]:
        constant = add_constant(graph, f"{node.outputs[0].name}.shape", np.array(target, np.int64))
        node.replace_input_with(1, constant)
        sign_nodes([node], name)
        drop_unread([old])
        return [node.outputs[0]]

    if ctx.apply(record, write):
        result.rewrites.append(record)
