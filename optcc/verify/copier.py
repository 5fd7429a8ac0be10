"""Copy values and nodes out of a live graph, which sees no additional uses."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["Copier", "is_weight"]


def is_weight(value: ir.Value) -> bool:
    """Tell whether `value` is an initializer that no caller can replace."""
    return value.is_initializer() and not value.is_graph_input()


class Copier:
    """Copies values and nodes; names stay where they are unique."""

    def __init__(self) -> None:
        self._copies: dict[ir.Value, ir.Value] = {}
        self._taken: set[str] = set()

    def leaf(self, value: ir.Value) -> ir.Value:
        """Return the copy of a value, made at the first call."""
        if value not in self._copies:
            copy = ir.Value(name=self._unused(value.name or "v"), type=value.type)
            if is_weight(value):
                copy.shape, copy.const_value = value.shape, value.const_value
            self._copies[value] = copy
        return self._copies[value]

    def name(self, value: ir.Value) -> str:
        """Return the name that the copy of `value` has."""
        return self._copies[value].name or ""

    def node(self, node: ir.Node) -> ir.Node:
        """Return a copy of `node` that reads and makes copies."""
        inputs = [None if v is None else self.leaf(v) for v in node.inputs]
        attributes = [self._attribute(a) for a in node.attributes.values()]
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            attributes,
            overload=node.overload,
            num_outputs=len(node.outputs),
            name=node.name,
        )
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name = self._unused(old.name) if old.name else ""
            self._copies[old] = new
        return copy

    def _attribute(self, attribute: ir.Attr) -> ir.Attr:
        if attribute.is_ref():
            return attribute
        if attribute.type == ir.AttributeType.GRAPH:
            return ir.AttrGraph(attribute.name, self._graph(attribute.as_graph()))
        if attribute.type == ir.AttributeType.GRAPHS:
            graphs = [self._graph(g) for g in attribute.as_graphs()]
            return ir.AttrGraphs(attribute.name, graphs)
        return attribute

    def _graph(self, graph: ir.Graph) -> ir.Graph:
        inputs = [self._typed(v) for v in graph.inputs]
        weights = [self.leaf(v) for v in graph.initializers.values()]
        nodes = [self.node(n) for n in graph]
        outputs = [self.leaf(v) for v in graph.outputs]
        for old, new in zip(graph.outputs, outputs, strict=True):
            new.type = old.type
        return ir.Graph(inputs, outputs, nodes=nodes, initializers=weights, name=graph.name)

    def _typed(self, value: ir.Value) -> ir.Value:
        copy = self.leaf(value)
        copy.shape = value.shape
        return copy

    def _unused(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._taken:
            number += 1
            unique = f"{name}~{number}"
        self._taken.add(unique)
        return unique
