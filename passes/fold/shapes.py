"""Integer chains over static dims -> constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite
from passes.fold.dim_values import DimTracer
from passes.fold.store import store_results

__all__ = ["FoldShapes"]

_DTYPES = {ir.DataType.INT64: np.int64, ir.DataType.INT32: np.int32}


class FoldShapes:
    """Replace what is computed from Shape by the numbers that inference knows.

    Only elements that are needed must be static: `Gather(Shape(x), 1)` folds although the batch
    of x is dynamic. A chain is replaced at its end, and the rest of it disappears.

    Keeps: the bits of every value for all sizes of dynamic dims. A shape that only the file
    declares (that of a graph output) is not trusted.
    """

    name = "fold.shapes"
    exactness = Exactness.BITWISE
    needs = frozenset({Fact.SHAPES})
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Trace all nodes, then fold the ends of chains."""
        result = PassResult()
        tracer = DimTracer(model)
        for graph in list(model.graphs()):
            for node in list(graph):
                if node.graph is graph and _ends_chain(node, tracer):
                    _fold(graph, node, tracer, ctx, result, self.name)
        return result


def _numbers(value: ir.Value, tracer: DimTracer) -> np.ndarray | None:
    found = tracer.elements(value)
    numbers = None if found is None else found.numbers()
    if found is None or numbers is None or value.dtype not in _DTYPES:
        return None
    array = np.array(numbers, _DTYPES[value.dtype])
    return array.reshape(()) if found.rank == 0 else array


def _ends_chain(node: ir.Node, tracer: DimTracer) -> bool:
    """Tell whether `node` gives known numbers that something else than a foldable node reads."""
    value = node.outputs[0] if node.outputs else None
    if value is None or value not in tracer.known or is_constant(value):
        return False
    if all(v is None or is_constant(v) for v in node.inputs) or _numbers(value, tracer) is None:
        return False
    readers = [use.node for use in value.uses()]
    inner = [r for r in readers if r.outputs and r.outputs[0] in tracer.known]
    known = [r for r in inner if _numbers(r.outputs[0], tracer) is not None]
    return value.is_graph_output() or len(known) < len(readers)


def _fold(
    graph: ir.Graph,
    node: ir.Node,
    tracer: DimTracer,
    ctx: PassContext,
    result: PassResult,
    name: str,
) -> None:
    value = node.outputs[0]
    array = _numbers(value, tracer)
    if array is None:
        return
    what = f"{node.op_type} of static dims is {array.tolist()}"
    record = Rewrite(node.name or "", what, tracer.sources(value), (value,))
    if ctx.apply(record, lambda: store_results(graph, node, {value: array}, name)):
        result.rewrites.append(record)
