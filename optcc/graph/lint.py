"""Structural rules that hold for every graph between two passes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.signature import Signature, signature_of
from optcc.graph.walk import all_values, graphs_of, subgraphs_of

__all__ = ["find_undefined", "lint"]


def lint(model: ir.Model, signature: Signature) -> list[str]:
    """Return every broken rule as one sentence; an empty list is a sound graph.

    Rules: inputs and outputs are those of `signature` in name, type and dims; every value has one
    producer, which comes before its readers; names are unique, nested graphs included; domains
    are imported; inputs and outputs have a type.
    """
    graphs = graphs_of(model)
    problems = _signature_changes(signature, signature_of(model))
    problems += _undefined(graphs)
    problems += _order_faults(graphs)
    problems += _repeated_names(graphs)
    problems += _missing_imports(model, graphs)
    return problems


def _signature_changes(before: Signature, after: Signature) -> list[str]:
    problems = []
    for kind in ("inputs", "outputs"):
        old, new = getattr(before, kind), getattr(after, kind)
        if [s.name for s in old] != [s.name for s in new]:
            problems.append(f"{kind} were {[s.name for s in old]}, are {[s.name for s in new]}")
            continue
        problems += [
            f"{kind[:-1]} {a.name!r} was {a.dtype} {a.dims}, is {b.dtype} {b.dims}"
            for a, b in zip(old, new, strict=True)
            if a != b
        ]
    return problems


def find_undefined(model: ir.Model) -> list[str]:
    """Name the values that are read but that nothing produces."""
    return _undefined(graphs_of(model))


def _undefined(graphs: Sequence[ir.Graph]) -> list[str]:
    problems: list[str] = []
    for graph in graphs:
        for node in graph:
            problems += [
                f"node {node.name!r} ({node.op_type}) reads {value.name!r}, which nothing produces"
                for value in node.inputs
                if value is not None and _is_orphan(value)
            ]
        problems += [
            f"output {value.name!r} of graph {graph.name!r} is not produced in it"
            for value in graph.outputs
            if _is_orphan(value) or not _belongs(value, graph)
        ]
    return problems


def _is_orphan(value: ir.Value) -> bool:
    producer = value.producer()
    if producer is not None:
        return producer.graph is None
    return not value.is_graph_input() and not value.is_initializer()


def _belongs(value: ir.Value, graph: ir.Graph) -> bool:
    producer = value.producer()
    return value.graph is graph if producer is None else producer.graph is graph


def _order_faults(graphs: Sequence[ir.Graph]) -> list[str]:
    """Name the readers that come before their producer, or reach into a graph not around them."""
    place = {node: index for graph in graphs for index, node in enumerate(graph)}
    around = {g: n for n in place if n.attributes.data for g in subgraphs_of(n)}
    problems: list[str] = []
    for node in place:
        for value in node.inputs:
            if value is None or _is_orphan(value):
                continue
            seat = _seat_in(value.graph, node, around)
            producer = value.producer()
            if seat is None or (producer is not None and place.get(producer, -1) >= place[seat]):
                problems.append(
                    f"node {node.name!r} ({node.op_type}) reads {value.name!r}"
                    " before it is produced or from outside its scope"
                )
    return problems


def _seat_in(
    graph: ir.Graph | None, node: ir.Node, around: dict[ir.Graph, ir.Node]
) -> ir.Node | None:
    """Return the node of `graph` that is `node` or holds it in a subgraph."""
    seat: ir.Node | None = node
    while seat is not None and seat.graph is not graph:
        seat = around.get(seat.graph) if seat.graph is not None else None
    return seat


def _repeated_names(graphs: Sequence[ir.Graph]) -> list[str]:
    problems: list[str] = []
    values: dict[str, ir.Value] = {}
    nodes: set[str] = set()
    for graph in graphs:
        problems += [
            f"two values are called {value.name!r}"
            for value in all_values(graph)
            if values.setdefault(value.name or "", value) is not value
        ]
        for node in graph:
            if node.name and node.name in nodes:
                problems.append(f"two nodes are called {node.name!r}")
            nodes.add(node.name or "")
    return problems


def _missing_imports(model: ir.Model, graphs: Sequence[ir.Graph]) -> list[str]:
    local = {(f.domain, f.name) for f in model.functions.values()}
    used = {n.domain: n for g in graphs for n in g if (n.domain, n.op_type) not in local}
    return [
        f"node {node.name!r} ({node.op_type}) is of domain {domain!r}, which is not imported"
        for domain, node in used.items()
        if domain not in model.opset_imports
    ]
