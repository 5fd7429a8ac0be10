"""Transpose, what works in any order of axes, Transpose back -> the same without the Transposes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, fresh_name, is_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from optcc.passkit.rewrite import default_opset, drop_unread, sign_nodes
from passes.layout.carriers import carried_inputs, reorder_attributes, reordered_constant
from passes.layout.component import Component, grow

__all__ = ["SinkTransposes"]

_FIRST_OPSET = 13
"""Before it Softmax works on all axes from one on."""


class SinkTransposes:
    """Let what lies between Transposes work in the order of axes that lies outside of them.

    Activations, residual sums, Concat, Split and the like; only where it leaves fewer Transposes.
    Exports of channels-last networks put a Transpose in front of each Conv and one behind it; what
    lies between two Convs then needs none.

    Keeps: graph inputs and outputs, their names, types and shapes; every number but for the order
    in which a reduction adds.
    """

    name = "layout.transpose"
    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Try the piece of graph behind each Transpose."""
        result = PassResult()
        if default_opset(model) < _FIRST_OPSET:
            return result
        for graph in list(model.graphs()):
            position = {node: k for k, node in enumerate(graph)}
            tried: set[ir.Node] = set()
            for node in list(graph):
                if node.graph is graph and node.op_type == "Transpose":
                    self._try(graph, grow(graph, node, position), tried, ctx, result)
        return result

    def _try(
        self,
        graph: ir.Graph,
        found: Component | None,
        tried: set[ir.Node],
        ctx: PassContext,
        result: PassResult,
    ) -> None:
        if found is None or found.nodes[0] in tried:
            return
        tried.update(found.nodes)
        root = found.nodes[0].name or ""
        gain = found.gain()
        if gain <= 0:
            if found.behind and any(found.undoes(t) for t in found.behind):
                result.rejects.append(Rejection(root, _needed(found)))
            return
        what = f"{len(found.nodes)} nodes in another order of axes: {gain} Transposes less"
        record = Rewrite(root, what, tuple(found.inputs()), tuple(found.outputs()))
        if ctx.apply(record, lambda: _rewrite(graph, found, self.name)):
            result.rewrites.append(record)


def _needed(found: Component) -> str:
    others = [*found.foreign, *found.seen]
    name = others[0].name if others else ""
    return f"as many Transposes would be needed, for {name!r} first"


def _rewrite(graph: ir.Graph, found: Component, name: str) -> list[ir.Value]:
    """Change the component in place; inner values keep their names and get the other order."""
    moved = {t.outputs[0]: t.inputs[0] for t in found.before}
    moved |= {v: _transposed(graph, v, _inverse(found.order), name) for v in found.foreign}
    for node in found.nodes:
        _turn(graph, node, found.order, moved)
    standing = [_turned_back(graph, value, found, name) for value in found.seen]
    standing += [_behind(graph, t, found) for t in found.behind]
    sign_nodes(found.nodes, name)
    drop_unread([t.outputs[0] for t in found.before])
    return standing


def _turn(
    graph: ir.Graph, node: ir.Node, order: Sequence[int], moved: dict[ir.Value, ir.Value | None]
) -> None:
    data = set(carried_inputs(node))
    for index, value in enumerate(node.inputs):
        if value is None or value not in data:
            continue
        if value in moved:
            node.replace_input_with(index, moved[value])
        elif is_constant(value) and known_rank(value):
            array = constant_of(value)
            assert array is not None
            turned = reordered_constant(array, order)
            if turned is not array:
                node.replace_input_with(index, add_constant(graph, f"{value.name}.turned", turned))
    reorder_attributes(node, order, lambda name, array: add_constant(graph, name, array))
    for value in node.outputs:
        if value.shape is not None and value.shape.rank() == len(order):
            dims = list(value.shape)
            value.shape = ir.Shape([dims[k] for k in _inverse(order)])


def _inverse(order: Sequence[int]) -> list[int]:
    return [int(k) for k in np.argsort(order)]


def _transposed(graph: ir.Graph, value: ir.Value, order: Sequence[int], name: str) -> ir.Value:
    """Return `value` in another order, through a new Transpose at its place."""
    perm = ir.AttrInt64s("perm", order)
    node = ir.Node("", "Transpose", [value], [perm], name=f"{value.name}.transpose")
    node.outputs[0].name = fresh_name(graph, f"{value.name}.turned")
    node.outputs[0].type = value.type
    if value.shape is not None:
        dims = list(value.shape)
        node.outputs[0].shape = ir.Shape([dims[k] for k in perm.as_ints()])
    sign_nodes([node], name)
    producer = value.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, node)
    else:
        graph.insert_before(graph[0], node)
    return node.outputs[0]


def _turned_back(graph: ir.Graph, value: ir.Value, found: Component, name: str) -> ir.Value:
    """Give readers outside the value in the order they know, under the name they know."""
    inside = {*found.nodes, *found.behind}
    outside = [u for u in value.uses() if u.node not in inside]
    back = _transposed(graph, value, found.order, name)
    for use in outside:
        use.node.replace_input_with(use.idx, back)
    if value.is_graph_output():
        outputs = graph.outputs
        back.shape, back.type = _declared(value, found), value.type
        outputs[list(outputs).index(value)] = back
        wanted, value.name = value.name, back.name
        back.name = wanted
    return back


def _declared(value: ir.Value, found: Component) -> ir.Shape | None:
    """Return the shape as it was declared: that of `value` has been turned already."""
    if value.shape is None:
        return None
    dims = list(value.shape)
    return ir.Shape([dims[k] for k in found.order])


def _behind(graph: ir.Graph, transpose: ir.Node, found: Component) -> ir.Value:
    """Let a Transpose behind read the other order, or take it away."""
    result = transpose.outputs[0]
    source = transpose.inputs[0]
    assert source is not None
    if not found.undoes(transpose):
        transpose.attributes["perm"] = ir.AttrInt64s("perm", found.composed(transpose))
        return result
    if result.is_graph_output():
        identity = ir.Node("", "Identity", [source], name=transpose.name)
        graph.insert_before(transpose, identity)
        carrier = identity.outputs[0]
        carrier.type, carrier.shape = result.type, result.shape
        result.replace_all_uses_with(carrier, replace_graph_outputs=True)
        wanted, result.name = result.name, fresh_name(graph, f"{result.name}.old")
        carrier.name = wanted
        graph.remove(transpose, safe=True)
        return carrier
    result.replace_all_uses_with(source)
    graph.remove(transpose, safe=True)
    return source
