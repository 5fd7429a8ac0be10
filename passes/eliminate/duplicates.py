"""Equal initializers and equal computations -> one of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import onnx_ir as ir

from optcc.graph.edit import needs_identity, replace_node
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from passes.eliminate.sameness import bytes_key, head_key, node_key, shape_key

__all__ = ["EliminateDuplicates"]

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


class EliminateDuplicates:
    """Keep the first of equal initializers, and the first of nodes that compute the same.

    Nodes are the same when operator, attributes and inputs are; those that draw random numbers,
    hold subgraphs or belong to other domains are left alone. Each graph is looked at by itself.

    Keeps: the bits of every value, and all graph outputs, which never merge with each other.
    """

    name = "eliminate.duplicates"
    exactness = Exactness.BITWISE
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Merge initializers, then nodes in graph order."""
        result = PassResult()
        for graph in list(model.graphs()):
            for first, second in _equal_initializers(graph):
                _merge_initializer(graph, first, second, ctx, result)
            seen: dict[Hashable, ir.Node] = {}
            for node in list(graph):
                key = node_key(node)
                first_node = None if key is None else seen.setdefault(key, node)
                if first_node is not None and first_node is not node:
                    _merge_node(graph, first_node, node, ctx, result)
        return result


def _equal_initializers(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield pairs (kept, equal to it); all data is read only where type, shape and head repeat."""
    values = [
        v for v in graph.initializers.values() if not v.is_graph_input() and not _awaits_norm(v)
    ]
    for alike in _repeated(values, shape_key):
        for similar in _repeated(alike, head_key):
            for first, *others in _repeated(similar, bytes_key):
                yield from ((first, v) for v in others if not v.is_graph_output())


def _awaits_norm(value: ir.Value) -> bool:
    """Tell whether a BatchNormalization is yet to be folded into this weight.

    A weight that two nodes share cannot take it in.
    """
    weighted = [u.node for u in value.uses() if u.idx == 1 and u.node.op_type in _WEIGHTED]
    readers = [use.node for node in weighted for use in node.outputs[0].uses()]
    return any(reader.op_type == "BatchNormalization" for reader in readers)


def _repeated(
    values: Iterable[ir.Value], key: Callable[[ir.TensorProtocol], Hashable]
) -> list[list[ir.Value]]:
    """Return the groups of two and more values whose data have one key."""
    groups: dict[Hashable, list[ir.Value]] = {}
    for value in values:
        if value.const_value is not None:
            groups.setdefault(key(value.const_value), []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _merge_initializer(
    graph: ir.Graph, first: ir.Value, second: ir.Value, ctx: PassContext, result: PassResult
) -> None:
    name = second.name or ""
    record = Rewrite(name, f"initializer {name!r} equals {first.name!r}", (), (second,))

    def merge() -> list[ir.Value]:
        second.replace_all_uses_with(first)
        del graph.initializers[name]
        return [first]

    if ctx.apply(record, merge):
        result.rewrites.append(record)


def _merge_node(
    graph: ir.Graph, first: ir.Node, second: ir.Node, ctx: PassContext, result: PassResult
) -> None:
    wanted = [
        (old, new)
        for old, new in zip(second.outputs, first.outputs, strict=True)
        if old.uses() or old.is_graph_output()
    ]
    name = second.name or ""
    for old, new in wanted:
        if needs_identity(graph, old, new):
            reason = f"{old.name!r} and the equal {new.name!r} are both outputs of the graph"
            result.rejects.append(Rejection(name, reason))
            return
    if not wanted:
        return
    olds, news = [o for o, _ in wanted], [n for _, n in wanted]
    read = tuple(
        dict.fromkeys(v for v in second.inputs if v is not None and not v.is_initializer())
    )
    record = Rewrite(name, f"{second.op_type} equals {first.name!r}", read, tuple(olds))
    if ctx.apply(record, lambda: replace_node(graph, [second], [], olds, news)):
        result.rewrites.append(record)
