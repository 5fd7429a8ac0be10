"""Shapes and types of values: inferred afresh, never trusted as they stand in a file."""

from __future__ import annotations

import onnx_ir as ir

from optcc.graph.io import infer_values
from optcc.graph.walk import all_graphs, all_nodes, subgraphs_of

__all__ = ["infer_shapes", "known_rank", "static_dims", "without_inferable_types"]


def infer_shapes(model: ir.Model, *, strict: bool = False) -> None:
    """Infer types and shapes of all inner values of `model`, in place.

    What the values carried before is dropped first, because it may lie. Where inference cannot
    tell the type (operators of other domains), the earlier type stays and the shape is unknown.
    Inputs and outputs of the main graph keep what they declare, and so do the round and the
    condition that a Loop hands to its body: runtimes want their shape, and inference tells none.

    Args:
        model: The nodes must be in order.
        strict: Whether a contradiction between nodes raises.

    Raises:
        UnsupportedModelError: In strict mode, nodes contradict each other; nothing has changed.
    """
    inferred = infer_values(model, strict=strict)
    counters = _loop_counters(model.graph)
    for index, graph in enumerate(all_graphs(model.graph)):
        known = inferred[index]
        for value in (v for v in _inner_values(graph, main=index == 0) if v not in counters):
            found = known.get(value.name or "")
            value.shape = None if found is None or found.shape is None else found.shape.copy()
            if found is not None and found.type is not None:
                value.type = found.type


def _inner_values(graph: ir.Graph, *, main: bool) -> list[ir.Value]:
    outputs = [v for n in graph for v in n.outputs if v.name]
    if main:
        return [v for v in outputs if not v.is_graph_output()]
    return [*graph.inputs, *outputs]


def _loop_counters(graph: ir.Graph) -> set[ir.Value]:
    loops = (n for n in all_nodes(graph) if n.op_type == "Loop" and n.domain == "")
    return {v for n in loops for body in subgraphs_of(n) for v in body.inputs[:2]}


def static_dims(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the dims when all of them are numbers, else None."""
    if value is None or value.shape is None:
        return None
    dims = value.shape.dims
    return tuple(d for d in dims if isinstance(d, int)) if value.shape.is_static() else None


def known_rank(value: ir.Value | None) -> int | None:
    """Return the number of dims, or None when it is unknown."""
    return None if value is None or value.shape is None else value.shape.rank()


def without_inferable_types(model: ir.Model) -> ir.Model:
    """Copy `model` without the types of inner values that every reader infers by itself.

    They take more room in a small quantized file than its scales do. Results of operators outside
    the standard keep theirs, since nobody can infer them.
    """
    lean = model.clone()
    for node in all_nodes(lean.graph):
        if node.domain == "":
            for value in (v for v in node.outputs if not v.is_graph_output()):
                value.type, value.shape = None, None
    return lean
