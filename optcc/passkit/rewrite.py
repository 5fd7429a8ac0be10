"""The base of passes that replace one small piece of graph by another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from optcc.graph.edit import is_constant, remove_nodes, replace_node
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from optcc.passkit.matcher import Match, find_matches
from optcc.passkit.pattern import Root

__all__ = [
    "MADE_BY",
    "Reject",
    "RewritePass",
    "default_opset",
    "drop_unread",
    "drop_unused_constants",
    "new_nodes_behind",
    "node_like",
    "refuse",
    "sign_nodes",
]

MADE_BY = "optcc.pass"
"""Metadata key of a node: the passes that made it."""


class Reject(Exception):  # noqa: N818 - a decision, not a fault
    """A match is left alone, for the reason given."""


class RewritePass(ABC):
    """Replace every match of `pattern` for which `check` has no objection.

    The main graph and all nested graphs are covered; bodies of model-local functions are left
    alone. A match never crosses the border of a graph. Nodes are visited in graph order.

    Attributes:
        pattern: The structure; the matcher refuses matches whose inner values are seen outside.
    """

    name: str
    exactness: Exactness
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()
    pattern: Root

    def extended(self, m: Match) -> Match:
        """Take in optional nodes around what the pattern found; by default none.

        A pattern alone would find the smaller match first and stop there.
        """
        return m

    def applies(self, m: Match) -> bool:
        """Say what the pattern cannot say; False means no match at all, and nothing is recorded."""
        return True

    def check(self, m: Match) -> None:  # noqa: B027 - a pattern that says everything is fine
        """Raise `Reject` when the match must stay; change nothing."""

    @abstractmethod
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Build the replacement.

        New nodes belong to no graph yet: they are found behind the returned values and inserted
        at the place of the root.

        Returns:
            One value for each of `m.outputs`.
        """

    def describe(self, m: Match) -> str:
        """Return one plain sentence: what is replaced."""
        return " + ".join(n.op_type for n in m.region)

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Visit all nodes once."""
        result = PassResult()
        opset = default_opset(model)
        for graph in list(model.graphs()):
            for node in list(graph):
                if node.graph is graph:
                    self._visit(node, opset, ctx, result)
        return result

    def _visit(self, node: ir.Node, opset: int, ctx: PassContext, result: PassResult) -> None:
        reasons: dict[str, None] = {}
        for found in find_matches(self.pattern, node, opset):
            if not found.outputs:
                return
            match = self.extended(found)
            if not self.applies(match):
                continue
            reason = self._objection(match)
            if reason is None:
                self._apply(match, ctx, result)
                return
            reasons[reason] = None
        result.rejects.extend(Rejection(node.name or "", reason) for reason in reasons)

    def _objection(self, match: Match) -> str | None:
        reason = match.escape()
        if reason is None:
            try:
                self.check(match)
            except Reject as reject:
                return str(reject)
        return reason

    def _apply(self, match: Match, ctx: PassContext, result: PassResult) -> None:
        name = match.root.name or ""
        record = Rewrite(name, self.describe(match), match.inputs, match.outputs)
        if ctx.apply(record, lambda: self._replace(match)):
            result.rewrites.append(record)

    def _replace(self, match: Match) -> list[ir.Value]:
        graph = match.root.graph
        assert isinstance(graph, ir.Graph)
        old = match.outputs
        read = [v for n in match.region for v in n.inputs]
        new = self.rewrite(match, graph)
        nodes = new_nodes_behind(new)
        sign_nodes(nodes, self.name)
        standing = replace_node(graph, match.region, nodes, old, new)
        drop_unused_constants(read)
        return standing


def refuse(condition: bool, reason: str) -> None:
    """Raise `Reject(reason)` when `condition` holds."""
    if condition:
        raise Reject(reason)


def default_opset(model: ir.Model) -> int:
    """Return the version of the default domain."""
    return model.opset_imports.get("", 1)


def node_like(
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    *,
    op_type: str | None = None,
    attributes: Mapping[str, ir.Attr] | None = None,
    outputs: int = 1,
) -> ir.Node:
    """Make a node that takes the place of `node`: same name, metadata and, by default, attributes.

    Args:
        node: Stays as it is.
        inputs: Trailing None are dropped.
        op_type: Another type in the default domain.
        attributes: Replace those of `node` as a whole.
        outputs: How many.
    """
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return ir.Node(
        node.domain if op_type is None else "",
        op_type or node.op_type,
        kept,
        (node.attributes if attributes is None else attributes).values(),
        num_outputs=outputs,
        name=node.name,
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )


def new_nodes_behind(values: Iterable[ir.Value]) -> list[ir.Node]:
    """Return the nodes in no graph yet that `values` depend on, producers first."""
    ordered: dict[ir.Node, None] = {}
    stack = [(v.producer(), False) for v in reversed(list(values))]
    while stack:
        node, expanded = stack.pop()
        if node is None or node.graph is not None or node in ordered:
            continue
        if expanded:
            ordered[node] = None
            continue
        stack.append((node, True))
        stack.extend((v.producer(), False) for v in reversed(node.inputs) if v is not None)
    return list(ordered)


def sign_nodes(nodes: Iterable[ir.Node], name: str) -> None:
    """Write the pass into the metadata of the nodes it made, after those that were there."""
    for node in nodes:
        earlier = node.metadata_props.get(MADE_BY, "")
        names = [n for n in earlier.split(",") if n and n != name]
        node.metadata_props[MADE_BY] = ",".join([*names, name])


def drop_unused_constants(values: Iterable[ir.Value | None]) -> None:
    """Remove those of `values` that are constants and that nothing reads any more."""
    for value in dict.fromkeys(values):
        if value is None or value.uses() or value.is_graph_output() or not is_constant(value):
            continue
        producer, graph = value.producer(), value.graph
        if producer is not None and isinstance(producer.graph, ir.Graph):
            remove_nodes(producer.graph, [producer])
        elif value.is_initializer() and graph is not None and value.name is not None:
            del graph.initializers[value.name]


def drop_unread(values: Iterable[ir.Value | None]) -> None:
    """Remove what makes `values` as far as nothing reads it any more: nodes and constants."""
    pending = list(values)
    while pending:
        value = pending.pop()
        producer = None if value is None else value.producer()
        if producer is None or not isinstance(producer.graph, ir.Graph):
            drop_unused_constants([value])
        elif not any(v.uses() or v.is_graph_output() for v in producer.outputs):
            pending.extend(producer.inputs)
            remove_nodes(producer.graph, [producer])
