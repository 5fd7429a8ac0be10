"""Nodes and initializers that no output needs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.edit import remove_dead
from optcc.graph.walk import all_graphs, all_nodes, subgraphs_of
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite

__all__ = ["EliminateDead"]


class EliminateDead:
    """Remove nodes whose values nothing reads, and initializers without a reader.

    Keeps: every output and its bits; all graph inputs, read or not. Covers nested graphs.
    """

    name = "eliminate.dead"
    exactness = Exactness.BITWISE
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Remove all dead code at once: there is nothing that could be compared one by one."""
        result = PassResult()
        dead = _dead_names(model.graph)
        if not dead:
            return result
        record = Rewrite(dead[0], f"{len(dead)} unread nodes and initializers removed")
        if ctx.apply(record, lambda: _remove(model.graph)):
            result.rewrites.append(record)
        return result


def _remove(graph: ir.Graph) -> Sequence[ir.Value]:
    remove_dead(graph)
    return ()


def _dead_names(graph: ir.Graph) -> list[str]:
    dead: dict[ir.Node, None] = {}
    for inner in all_graphs(graph):
        _mark_dead(inner, dead)
    unread = [
        v
        for g in all_graphs(graph)
        for v in g.initializers.values()
        if not (v.is_graph_output() or v.is_graph_input()) and all(u.node in dead for u in v.uses())
    ]
    return [*(n.name or n.op_type for n in dead), *(v.name or "" for v in unread)]


def _mark_dead(graph: ir.Graph, dead: dict[ir.Node, None]) -> None:
    for node in reversed(graph):
        outputs = node.outputs
        if any(v.is_graph_output() or any(u.node not in dead for u in v.uses()) for v in outputs):
            continue
        dead[node] = None
        dead.update(dict.fromkeys(n for g in subgraphs_of(node) for n in all_nodes(g)))
