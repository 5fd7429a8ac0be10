"""Grow quantization units: the nodes that join a weighted node with no Q/DQ between them.

Conv, ConvTranspose: + residual Add + Relu | Clip | HardSwish.
MatMul: + bias Add + Relu | Clip | HardSwish.   Gemm: + Relu | Clip | HardSwish.

Residual Add: Q/DQ go on the skip branch and not between Conv and Add, so that the Conv's kernel
adds and writes int8 at once (the precision of the other operand decides that of the result).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.graph.shapes import static_dims
from passes.quantize.layers import WEIGHTED, refusal
from passes.quantize.narrow import data_values, hands_on

__all__ = ["Draft", "grow_units"]

_ACTIVATIONS = frozenset({"Relu", "Clip", "HardSwish"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})


@dataclass(slots=True)
class Draft:
    """A unit that may still grow.

    Attributes:
        nodes: The weighted node first.
        skip: The other operand of an absorbed residual Add.
        closed: An activation was absorbed; nothing joins any more.
        biased: A MatMul has its bias Add.
    """

    nodes: list[ir.Node]
    skip: ir.Value | None = None
    closed: bool = False
    biased: bool = False
    inner: list[ir.Value] = field(default_factory=list)

    @property
    def root(self) -> ir.Node:
        """The weighted node."""
        return self.nodes[0]

    @property
    def output(self) -> ir.Value:
        """The value that leaves the unit."""
        return self.nodes[-1].outputs[0]

    def only_feeds(self, node: ir.Node) -> bool:
        """Tell whether the unit's output is seen by `node` alone, once."""
        uses = self.output.uses()
        if self.output.is_graph_output() or len(uses) != 1:
            return False
        return next(iter(uses)).node is node


def grow_units(graph: ir.Graph) -> tuple[list[Draft], dict[str, str]]:
    """Walk `graph` once in order and collect its units.

    Args:
        graph: Topologically sorted.

    Returns:
        The units in graph order of their weighted nodes, and per refused weighted node the reason.
    """
    growth = _Growth()
    for node in graph:
        growth.visit(node)
    return growth.drafts, growth.refused


class _Growth:
    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.refused: dict[str, str] = {}
        self._open: dict[ir.Value, Draft] = {}
        self._narrow: dict[ir.Value, None] = {}

    def visit(self, node: ir.Node) -> None:
        if node.domain != "":
            return
        if node.op_type in WEIGHTED:
            self._start(node)
        elif node.op_type == "Add":
            self._add(node)
        elif node.op_type in _ACTIVATIONS:
            self._activation(node)
        elif hands_on(node) and all(v in self._narrow for v in data_values(node)):
            self._narrow[node.outputs[0]] = None

    def _start(self, node: ir.Node) -> None:
        reason = refusal(node)
        if reason is not None:
            self.refused[node.name or ""] = reason
            return
        draft = Draft([node])
        self.drafts.append(draft)
        self._publish(draft)

    def _publish(self, draft: Draft) -> None:
        self._open[draft.output] = draft
        self._narrow[draft.output] = None

    def _join(self, draft: Draft, node: ir.Node) -> None:
        del self._open[draft.output]
        draft.nodes.append(node)
        self._publish(draft)

    def _drafts_into(self, node: ir.Node) -> list[tuple[Draft, ir.Value]]:
        """Return the open units that feed only `node`, each with the node's other operand."""
        first, second = node.inputs[0], node.inputs[1]
        found = []
        for own, other in ((first, second), (second, first)):
            draft = None if own is None else self._open.get(own)
            if draft is not None and other is not None and draft.only_feeds(node):
                found.append((draft, other))
        return [(d, other) for d, other in found if not d.closed]

    def _add(self, node: ir.Node) -> None:
        for draft, other in self._drafts_into(node):
            if draft.root.op_type == "MatMul" and not draft.biased and _is_row(other, draft):
                draft.biased = True
                self._join(draft, node)
                return
        residual = [
            (d, other)
            for d, other in self._drafts_into(node)
            if d.root.op_type in _CONVOLUTIONS and d.skip is None and self._is_skip(d, other)
        ]
        if residual:
            draft, skip = max(residual, key=lambda pair: self.drafts.index(pair[0]))
            draft.skip = skip
            draft.inner.append(draft.output)
            self._join(draft, node)

    def _is_skip(self, draft: Draft, other: ir.Value) -> bool:
        return other in self._narrow and _may_be_equal(draft.output.shape, other.shape)

    def _activation(self, node: ir.Node) -> None:
        draft = None if node.inputs[0] is None else self._open.get(node.inputs[0])
        if draft is None or draft.closed or not draft.only_feeds(node) or not _fixed_bounds(node):
            return
        if node.op_type == "HardSwish" and draft.root.op_type in _CONVOLUTIONS:
            draft.inner.append(draft.output)
        draft.closed = True
        self._join(draft, node)


def _may_be_equal(one: ir.Shape | None, other: ir.Shape | None) -> bool:
    """Tell whether no known dim says that the shapes differ: a residual Add never broadcasts."""
    if one is None or other is None:
        return True
    pairs = zip(one.dims, other.dims, strict=False)
    known = ((a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int))
    return one.rank() == other.rank() and all(a == b for a, b in known)


def _is_row(value: ir.Value, draft: Draft) -> bool:
    """Tell whether `value` is a constant that adds one number per output column."""
    dims = static_dims(value)
    if not is_constant(value) or dims is None:
        return False
    columns = (static_dims(draft.root.inputs[1]) or (0, 0))[1]
    rank = None if draft.output.shape is None else draft.output.shape.rank()
    fits = rank is None or len(dims) <= rank
    return fits and all(d == 1 for d in dims[:-1]) and (not dims or dims[-1] in (1, columns))


def _fixed_bounds(node: ir.Node) -> bool:
    return all(v is None or is_constant(v) for v in node.inputs[1:])
