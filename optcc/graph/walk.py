"""Visit graphs, nodes and values, subgraphs included, always in the same order."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

__all__ = [
    "all_graphs",
    "all_nodes",
    "all_values",
    "graphs_of",
    "order_in",
    "outer_values",
    "subgraphs_of",
    "taken_names",
]


_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def subgraphs_of(node: ir.Node) -> list[ir.Graph]:
    """Return the graphs that `node` holds as attributes (branches of If, body of Loop, Scan)."""
    graphs: list[ir.Graph] = []
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if (kind is not _GRAPH and kind is not _GRAPHS) or attribute.is_ref():
            continue
        if kind is _GRAPH:
            graphs.append(attribute.as_graph())
        else:
            graphs.extend(attribute.as_graphs())
    return graphs


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield `graph` and every graph nested in it, an outer one before its inner ones."""
    stack = [graph]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(_inner_graphs(current)))


def _inner_graphs(graph: ir.Graph) -> list[ir.Graph]:
    inner: list[ir.Graph] = []
    for node in graph:
        if node.attributes.data:  # most nodes have none, and this is asked very often
            inner += subgraphs_of(node)
    return inner


def graphs_of(model: ir.Model) -> list[ir.Graph]:
    """Return the main graph, its nested graphs, and the bodies of model-local functions."""
    roots = [model.graph, *(f.graph for f in model.functions.values())]
    return [g for root in roots for g in all_graphs(root)]


def all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield every node of `graph` and of the graphs nested in it."""
    for current in all_graphs(graph):
        yield from current


def all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield inputs, initializers and node outputs of `graph` alone, each once."""
    yield from graph.inputs
    yield from (v for v in graph.initializers.values() if not v.is_graph_input())
    for node in graph:
        yield from (v for v in node.outputs if v.name != "")


def outer_values(node: ir.Node) -> list[ir.Value]:
    """Return the values that the subgraphs of `node` read from outside of them, each once."""
    inner = [g for s in subgraphs_of(node) for g in all_graphs(s)]
    own = dict.fromkeys(inner)
    seen: dict[ir.Value, None] = {}
    for graph in inner:
        for reader in graph:
            for value in reader.inputs:
                if value is not None and value.graph not in own:
                    seen[value] = None
    return list(seen)


def order_in(graph: ir.Graph) -> dict[ir.Node, int]:
    """Return the position of each node; a node of a subgraph has that of the node around it."""
    order: dict[ir.Node, int] = {}
    for position, node in enumerate(graph):
        order[node] = position
        for inner in subgraphs_of(node):
            order.update(dict.fromkeys(all_nodes(inner), position))
    return order


def taken_names(graph: ir.Graph) -> set[str]:
    """Return the names of all values of `graph` and of the graphs nested in it."""
    names: set[str | None] = set()
    pending = [graph]
    for current in pending:
        names.update([v.name for v in current.inputs])
        names.update(current.initializers.data)
        for node in current:
            for value in node.outputs:
                names.add(value.name)
            if node.attributes.data:
                pending += subgraphs_of(node)
    return {name for name in names if name}
