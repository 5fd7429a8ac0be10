"""Find where a pattern fits, and tell what the match would cut off."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant
from optcc.passkit.pattern import (
    COMMUTATIVE,
    AnyValue,
    Const,
    Maybe,
    OneOf,
    Op,
    Pattern,
    Root,
    Scalar,
)

__all__ = ["Match", "find_matches"]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """One place where a pattern fits.

    Attributes:
        root: The node whose output the pattern stands for.
        nodes: Named nodes.
        values: Named values.
        region: All matched nodes, producers before readers, the root last.
        opset: Version of the default domain.
    """

    root: ir.Node
    nodes: Mapping[str, ir.Node]
    values: Mapping[str, ir.Value]
    region: tuple[ir.Node, ...]
    opset: int

    def node(self, name: str) -> ir.Node:
        """Return the node bound to `name`."""
        return self.nodes[name]

    def value(self, name: str) -> ir.Value:
        """Return the value bound to `name`."""
        return self.values[name]

    def has(self, name: str) -> bool:
        """Tell whether `name` is bound: an optional input that is present."""
        return name in self.values or name in self.nodes

    def array(self, name: str) -> np.ndarray:
        """Read the constant bound to `name`."""
        array = constant_of(self.values[name])
        if array is None:
            raise KeyError(f"{name!r} is bound to {self.values[name].name!r}, which is no constant")
        return array

    def optional_array(self, name: str) -> np.ndarray | None:
        """Read the constant bound to `name`, or None when the input is absent."""
        return self.array(name) if name in self.values else None

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """Return the outputs of the root that something needs."""
        return tuple(v for v in self.root.outputs if v.uses() or v.is_graph_output())

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Return the values that flow into the region and are not constants, each once."""
        inside = set(self.region)
        read = dict.fromkeys(v for n in self.region for v in n.inputs if v is not None)
        return tuple(v for v in read if v.producer() not in inside and not is_constant(v))

    def escape(self) -> str | None:
        """Say which value inside the region is also needed outside of it, or None."""
        inside = set(self.region)
        for node in self.region:
            for value in node.outputs if node is not self.root else ():
                if value.is_graph_output():
                    return f"value {value.name!r} is also a graph output"
                for use in value.uses():
                    if use.node not in inside:
                        return f"value {value.name!r} is also read by {use.node.name!r}"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What has been bound so far; never changed, so that alternatives do not disturb each other."""

    graph: ir.Graph
    nodes: Mapping[str, ir.Node]
    values: Mapping[str, ir.Value]
    region: tuple[ir.Node, ...]

    def with_value(self, name: str | None, value: ir.Value) -> _Found | None:
        if name is None:
            return self
        if name in self.values:
            return self if self.values[name] is value else None
        return replace(self, values={**self.values, name: value})

    def with_node(self, name: str | None, node: ir.Node) -> _Found:
        nodes = self.nodes if name is None else {**self.nodes, name: node}
        region = self.region if node in self.region else (*self.region, node)
        return replace(self, nodes=nodes, region=region)


def find_matches(pattern: Root, node: ir.Node, opset: int) -> Iterator[Match]:
    """Yield every way in which `pattern` fits with `node` as its root.

    Structure only: what the match would cut off is `Match.escape`.
    """
    if node.graph is None or isinstance(node.graph, ir.Function):
        return
    start = _Found(node.graph, {}, {}, ())
    for choice in pattern.alternatives if isinstance(pattern, OneOf) else (pattern,):
        if isinstance(choice, Op):
            for found in _match_node(choice, node, start):
                yield Match(node, found.nodes, found.values, found.region, opset)


def _match_node(pattern: Op, node: ir.Node, found: _Found) -> Iterator[_Found]:
    if node.op_type not in pattern.op_types or node.domain != "" or node.graph is not found.graph:
        return
    if any(a.is_ref() for a in node.attributes.values()):
        return
    for inputs in _orders(node):
        if any(v is not None for v in inputs[len(pattern.inputs) :]):
            continue
        padded = (*inputs, *[None] * (len(pattern.inputs) - len(inputs)))
        for inner in _match_all(pattern.inputs, padded, found):
            yield inner.with_node(pattern.name, node)


def _orders(node: ir.Node) -> list[tuple[ir.Value | None, ...]]:
    inputs = tuple(node.inputs)
    if node.op_type in COMMUTATIVE and len(inputs) == 2 and inputs[0] is not inputs[1]:
        return [inputs, inputs[::-1]]
    return [inputs]


def _match_all(
    patterns: tuple[Pattern, ...], values: tuple[ir.Value | None, ...], found: _Found
) -> Iterator[_Found]:
    if not patterns:
        yield found
        return
    for first in _match_value(patterns[0], values[0], found):
        yield from _match_all(patterns[1:], values[1:], first)


def _match_value(pattern: Pattern, value: ir.Value | None, found: _Found) -> Iterator[_Found]:
    if isinstance(pattern, Maybe):
        if value is None:
            yield found
            return
        pattern = pattern.pattern
    if value is None:
        return
    if isinstance(pattern, OneOf):
        for alternative in pattern.alternatives:
            yield from _match_value(alternative, value, found)
    elif isinstance(pattern, Op):
        producer = value.producer()
        if producer is not None and value.index() == 0:
            yield from _match_node(pattern, producer, found)
    elif isinstance(pattern, (AnyValue, Const, Scalar)) and _fits(pattern, value):
        bound = found.with_value(pattern.name, value)
        if bound is not None:
            yield bound


def _fits(pattern: AnyValue | Const | Scalar, value: ir.Value) -> bool:
    if isinstance(pattern, AnyValue):
        return True
    if not is_constant(value):
        return False
    return isinstance(pattern, Const) or _is_number(pattern, value)


def _is_number(pattern: Scalar, value: ir.Value) -> bool:
    if value.shape is not None and any(d != 1 for d in value.shape):
        return False
    array = constant_of(value)
    if array is None or array.size != 1 or array.dtype.kind in "OSU":
        return False
    if pattern.number is None:
        return True
    allowed = pattern.tolerance * (abs(pattern.number) or 1.0)
    return math.isclose(float(array.reshape(())), pattern.number, rel_tol=0.0, abs_tol=allowed)
