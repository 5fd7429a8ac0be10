"""Short ways to write a wrong pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of
from optcc.passkit.contract import Exactness
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import Root, any_, maybe, op
from optcc.passkit.rewrite import MADE_BY, RewritePass, node_like

__all__ = ["Faulty", "at", "changed_constant", "constant", "number_like", "one", "remade"]

Rebuild = Callable[[Match, ir.Graph], ir.Value]


class Faulty(RewritePass):
    """A pass made of a pattern and a function that builds the wrong replacement.

    Args:
        name: After "wrong.".
        pattern: A pattern, or operator names: then inputs are bound as "i0", "i1", ...
        rebuild: Returns the value that stands for the output of the root.
        when: Which matches to take.
        exactness: What the pass promises, wrongly.
    """

    def __init__(
        self,
        name: str,
        pattern: Root | str | tuple[str, ...],
        rebuild: Rebuild,
        when: Callable[[Match], bool] = lambda m: True,
        exactness: Exactness = Exactness.ROUNDING,
    ) -> None:
        self.name = f"wrong.{name}"
        self.exactness = exactness
        self.pattern = _any_node(pattern) if isinstance(pattern, str | tuple) else pattern
        self._rebuild, self._when = rebuild, when

    def applies(self, m: Match) -> bool:
        """Take each node once: what the pass made is left alone."""
        mine = self.name in m.root.metadata_props.get(MADE_BY, "").split(",")
        return not mine and len(m.outputs) == 1 and self._when(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Build the wrong replacement."""
        return [self._rebuild(m, graph)]


def _any_node(types: str | tuple[str, ...]) -> Root:
    return op(types, *(maybe(any_(f"i{k}")) for k in range(6)))


def one(op_type: str, *inputs: ir.Value | None, **attributes: object) -> ir.Value:
    """Make a node of one output; an attribute `to` is written `to_`."""
    named = {k.rstrip("_"): v for k, v in attributes.items()}
    attrs = ir.convenience.convert_attributes(named)
    return ir.Node("", op_type, list(inputs), attrs).outputs[0]


def remade(node: ir.Node, inputs: Sequence[ir.Value | None] | None = None, **changes: object):
    """Make the node again, with other inputs, or with changed or (None) dropped attributes."""
    kept = {k: a for k, a in node.attributes.items() if k not in changes}
    given = {k: v for k, v in changes.items() if v is not None}
    new = {a.name: a for a in ir.convenience.convert_attributes(given)}
    return node_like(node, node.inputs if inputs is None else inputs, attributes=kept | new)


def at(node: ir.Node, index: int, value: ir.Value | None) -> list[ir.Value | None]:
    """Return the inputs of `node` with one of them replaced."""
    inputs = list(node.inputs)
    inputs[index] = value
    return inputs


def constant(graph: ir.Graph, array: np.ndarray) -> ir.Value:
    """Add a constant."""
    return add_constant(graph, "wrong.constant", array)


def number_like(graph: ir.Graph, value: ir.Value, number: float) -> ir.Value:
    """Add one number in the type of `value`."""
    assert value.dtype is not None
    return constant(graph, np.array(number, value.dtype.numpy()))


def changed_constant(
    name: str,
    types: str | tuple[str, ...],
    index: int,
    change: Callable[[np.ndarray], np.ndarray],
    when: Callable[[Match], bool] = lambda m: True,
) -> Faulty:
    """A pass that remakes a node with a changed constant at input `index`."""

    def fits(m: Match) -> bool:
        has = index < len(m.root.inputs) and constant_of(m.root.inputs[index]) is not None
        return has and when(m)

    def rebuild(m: Match, graph: ir.Graph) -> ir.Value:
        old = constant_of(m.root.inputs[index])
        assert old is not None
        new = np.ascontiguousarray(change(old.copy())).astype(old.dtype)
        return remade(m.root, at(m.root, index, constant(graph, new))).outputs[0]

    return Faulty(name, types, rebuild, fits)
