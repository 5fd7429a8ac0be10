"""A piece of graph between Transposes that could work in the order that lies before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.graph.shapes import known_rank
from passes.layout.carriers import carried_inputs, carries

__all__ = ["Component", "grow", "order_of"]


@dataclass(slots=True, eq=False)
class Component:
    """Nodes that carry data in any order of axes, and how they meet the rest of the graph.

    Attributes:
        order: p of each Transpose at the entry: inner values v become v' with v = Transpose(v', p).
        nodes: In graph order.
        before: Transposes by p whose results are read inside.
        foreign: Other values that are read inside, each once.
        behind: Transposes that read inner values; they get another order, or disappear.
        seen: Inner values that something else outside needs.
    """

    order: tuple[int, ...]
    nodes: list[ir.Node]
    before: list[ir.Node] = field(default_factory=list)
    foreign: list[ir.Value] = field(default_factory=list)
    behind: list[ir.Node] = field(default_factory=list)
    seen: list[ir.Value] = field(default_factory=list)

    def gain(self) -> int:
        """Return how many Transposes there would be less."""
        inside = set(self.nodes)
        free = [t for t in self.before if _only_read_by(t.outputs[0], inside)]
        undone = [t for t in self.behind if self.undoes(t)]
        return len(free) + len(undone) - len(self.foreign) - len(self.seen)

    def undoes(self, transpose: ir.Node) -> bool:
        """Tell whether a Transpose behind turns `order` back."""
        return self.composed(transpose) == list(range(len(self.order)))

    def composed(self, transpose: ir.Node) -> list[int]:
        """Return the order in which a Transpose behind must read v' instead of v."""
        return [self.order[k] for k in order_of(transpose) or ()]

    def outputs(self) -> list[ir.Value]:
        """Return the values that are read outside."""
        return [*self.seen, *(t.outputs[0] for t in self.behind)]

    def inputs(self) -> list[ir.Value]:
        """Return the values that flow in, before the Transposes."""
        read = [t.inputs[0] for t in self.before]
        return list(dict.fromkeys(v for v in (*read, *self.foreign) if v is not None))


def order_of(node: ir.Node | None) -> tuple[int, ...] | None:
    """Return the permutation of a Transpose, or None for any other node."""
    if node is None or node.op_type != "Transpose" or node.domain != "":
        return None
    perm = node.attributes.get_ints("perm")
    rank = known_rank(node.inputs[0])
    if perm is None:
        return None if rank is None else tuple(reversed(range(rank)))
    return tuple(perm)


def grow(graph: ir.Graph, transpose: ir.Node, position: dict[ir.Node, int]) -> Component | None:
    """Return the component that reads `transpose`, or None when nothing there carries its data.

    Args:
        graph: Of the Transpose; nodes of nested graphs stay outside.
        transpose: Where it begins.
        position: Of each node in the graph.
    """
    order = order_of(transpose)
    if order is None:
        return None
    first = [u.node for u in transpose.outputs[0].uses()]
    nodes = _connected(graph, first, len(order))
    if not nodes:
        return None
    made = Component(order, sorted(nodes, key=position.__getitem__))
    _find_edges(made)
    return None if set(made.before) & set(made.behind) else made


def _connected(graph: ir.Graph, first: Sequence[ir.Node], rank: int) -> set[ir.Node]:
    found: set[ir.Node] = set()
    pending = list(first)
    while pending:
        node = pending.pop()
        if node in found or node.graph is not graph or not carries(node, rank):
            continue
        found.add(node)
        pending += [p for v in carried_inputs(node) if (p := v.producer()) is not None]
        pending += [u.node for v in node.outputs for u in v.uses()]
    return found


def _find_edges(made: Component) -> None:
    inside = set(made.nodes)
    before: dict[ir.Node, None] = {}
    foreign: dict[ir.Value, None] = {}
    for node in made.nodes:
        for value in carried_inputs(node):
            producer = value.producer()
            if producer in inside or is_constant(value) or known_rank(value) == 0:
                continue
            if producer is not None and order_of(producer) == made.order:
                before[producer] = None
            else:
                foreign[value] = None
        for value in node.outputs:
            _find_readers(made, value, inside)
    made.before, made.foreign = list(before), list(foreign)


def _find_readers(made: Component, value: ir.Value, inside: set[ir.Node]) -> None:
    outside = dict.fromkeys(u.node for u in value.uses() if u.node not in inside)
    behind = [n for n in outside if order_of(n) is not None and n.graph is value.graph]
    made.behind += behind
    if value.is_graph_output() or len(behind) < len(outside):
        made.seen.append(value)


def _only_read_by(value: ir.Value, nodes: set[ir.Node]) -> bool:
    return not value.is_graph_output() and all(u.node in nodes for u in value.uses())
