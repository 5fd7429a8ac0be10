"""Unique, stable names of nodes and values, nested graphs included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from optcc.graph.walk import all_values, graphs_of

__all__ = ["Renaming", "plan_renamings", "rename"]


@dataclass(frozen=True, slots=True, eq=False)
class Renaming:
    """One name to change.

    Attributes:
        target: The node or value.
        new: A name that nothing else has.
    """

    target: ir.Node | ir.Value
    new: str

    def __str__(self) -> str:
        kind = "node" if isinstance(self.target, ir.Node) else "value"
        return f"{kind} {self.target.name or ''!r} is now {self.new!r}"


def plan_renamings(model: ir.Model) -> list[Renaming]:
    """Say which names must change so that all are unique and none is empty.

    Inputs and outputs of the main graph keep theirs. Of several values with one name, the one that
    comes first in the graph keeps it; the others get a number. A nameless value or node is called
    after its node's first named output. Values with an empty name stand for outputs that are
    left out, and stay.
    """
    return [*_value_renamings(model), *_node_renamings(model)]


def _value_renamings(model: ir.Model) -> Iterator[Renaming]:
    interface = [*model.graph.inputs, *model.graph.outputs]
    reserved = {v.name: v for v in interface if v.name}
    every = [v for g in graphs_of(model) for v in all_values(g)]
    taken = {v.name for v in every if v.name}
    seen: set[str] = set(reserved)
    for value in every:
        name = value.name
        if name and reserved.get(name) is value:
            continue
        if name and name not in seen:
            seen.add(name)
            continue
        new = _unused(name or _value_stem(value), taken)
        taken.add(new)
        yield Renaming(value, new)


def _value_stem(value: ir.Value) -> str:
    producer = value.producer()
    if producer is None:
        return "value"
    return f"{producer.name or producer.op_type}.{producer.outputs.index(value)}"


def _node_renamings(model: ir.Model) -> Iterator[Renaming]:
    every = [n for g in graphs_of(model) for n in g]
    taken = {n.name for n in every if n.name}
    seen: set[str] = set()
    for node in every:
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        new = _unused(node.name or _node_stem(node), taken)
        taken.add(new)
        yield Renaming(node, new)


def _node_stem(node: ir.Node) -> str:
    made = next((v.name for v in node.outputs if v.name), "")
    return f"{made}.{node.op_type}" if made else node.op_type


def _unused(wanted: str, taken: set[str]) -> str:
    if wanted not in taken:
        return wanted
    number = 1
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"


def rename(renaming: Renaming) -> None:
    """Give the node or value its new name."""
    renaming.target.name = renaming.new
