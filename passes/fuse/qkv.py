"""Products of one value with constant matrices -> one product and a Split.

x @ w0, x @ w1, ... = split(x @ [w0 w1 ...])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from optcc.passkit.contract import (
    Exactness,
    Fact,
    PassContext,
    PassResult,
    Rejection,
    Rewrite,
)
from optcc.passkit.rewrite import Reject, default_opset
from passes.fuse.projection import Kind, Projection, projection_at
from passes.fuse.projection_merge import merge
from passes.fuse.projection_partner import partner_of

__all__ = ["FuseQkv"]

_FIRST_OPSET = 13

_Family = tuple[ir.Value, Kind]


class FuseQkv:
    """Merge Q, K and V of self-attention, and any other MatMuls or Gemms that read one value.

    Widths may differ, as with grouped heads. The bias of a Gemm is merged too, zeros where there is
    none; that of a MatMul is added behind the Split, because with an Add in between TensorRT-RTX
    1.7.1 runs the int8 product in float.
    Weights stored in int8 stay so, with one scale per output channel. A weight that others read
    stays apart, and products of different values always do.

    Keeps: graph inputs and outputs, their names, types and shapes; every dot product. Only the
    order of a sum may change.
    """

    name = "fuse.qkv"
    exactness = Exactness.ROUNDING
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Merge each family of products, in the order of its first member."""
        result = PassResult()
        if default_opset(model) < _FIRST_OPSET:
            return result
        for graph in list(model.graphs()):
            families = _families(graph, result)
            for members in families.values():
                if len(members) == 1:
                    _explain(members[0], families, result)
            for members in families.values():
                if len(members) > 1:
                    self._merge(graph, members, ctx, result)
        return result

    def _merge(
        self, graph: ir.Graph, members: Sequence[Projection], ctx: PassContext, result: PassResult
    ) -> None:
        first = members[0]
        names = ", ".join(repr(p.node.name) for p in members)
        outputs = tuple(p.output for p in members)
        what = f"{first.node.op_type} of {names} as one"
        record = Rewrite(first.node.name or "", what, (first.x,), outputs)
        if ctx.apply(record, self._action(graph, members)):
            result.rewrites.append(record)

    def _action(
        self, graph: ir.Graph, members: Sequence[Projection]
    ) -> Callable[[], Sequence[ir.Value]]:
        return lambda: merge(graph, members, self.name)


def _families(graph: ir.Graph, result: PassResult) -> dict[_Family, list[Projection]]:
    families: dict[_Family, list[Projection]] = {}
    for node in graph:
        try:
            projection = projection_at(node)
        except Reject as reason:
            if _has_siblings(node):
                result.rejects.append(Rejection(node.name or "", str(reason)))
            continue
        if projection is not None and _is_read(projection.output):
            families.setdefault((projection.x, projection.kind), []).append(projection)
    return families


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _has_siblings(node: ir.Node) -> bool:
    uses = node.inputs[0].uses() if node.inputs[0] is not None else ()
    kinds = ("MatMul", "Gemm")
    return any(u.idx == 0 and u.node.op_type in kinds and u.node is not node for u in uses)


def _explain(
    single: Projection, families: dict[_Family, list[Projection]], result: PassResult
) -> None:
    """Say why a product has no sibling, where one would expect it."""
    name = single.node.name or ""
    for (x, kind), (other, *_) in families.items():
        if x is single.x and kind != single.kind:
            what = f"its {single.kind.difference(kind)} is not that of {other.node.name!r}"
            result.rejects.append(Rejection(name, what))
            return
    partner = partner_of(single.output)
    if partner is not None and partner.inputs[0] is not single.x:
        what = f"it reads another value than {partner.name!r}, the other side of its attention"
        result.rejects.append(Rejection(name, what))
