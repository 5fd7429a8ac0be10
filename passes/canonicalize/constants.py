"""Constants in one place: initializers that are no inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant, replace_node
from optcc.graph.walk import graphs_of
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite

__all__ = ["CanonicalizeConstants"]


class CanonicalizeConstants:
    """Turn Constant nodes into initializers, and take initializers off the list of inputs.

    An initializer that is also an input is a default that a caller could override; the compiled
    model fixes it, and the trace says so.

    Keeps: every bit of every output, and all inputs that have no default. Covers nested graphs.
    """

    name = "canonicalize.constants"
    exactness = Exactness.BITWISE
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Treat inputs with a default first, then Constant nodes in graph order."""
        result = PassResult()
        for graph in graphs_of(model):
            for value in [v for v in graph.inputs if v.is_initializer()]:
                record = Rewrite(value.name or "", f"the default of input {value.name!r} is fixed")
                if ctx.apply(record, partial(_fix_default, graph, value)):
                    result.rewrites.append(record)
            for node in [n for n in graph if n.op_type == "Constant" and n.domain == ""]:
                _store(graph, node, ctx, result)
        return result


def _fix_default(graph: ir.Graph, value: ir.Value) -> Sequence[ir.Value]:
    graph.inputs.remove(value)
    return ()


def _store(graph: ir.Graph, node: ir.Node, ctx: PassContext, result: PassResult) -> None:
    value = node.outputs[0]
    reason = _obstacle(value)
    if reason:
        result.rejects.append(Rejection(node.name or "", reason))
        return
    record = Rewrite(
        node.name or "", f"Constant {value.name!r} became an initializer", (), (value,)
    )
    if ctx.apply(record, partial(_to_initializer, graph, node)):
        result.rewrites.append(record)


def _obstacle(value: ir.Value) -> str:
    if value.is_graph_output():
        return f"constant {value.name!r} is an output of its graph"
    if not is_constant(value):
        return f"constant {value.name!r} is sparse or depends on a function attribute"
    return ""


def _to_initializer(graph: ir.Graph, node: ir.Node) -> Sequence[ir.Value]:
    """Store the tensor under the name of the value, which is free once the node is gone."""
    old, tensor = node.outputs[0], _tensor(node)
    stored = ir.Value(
        name=f"{old.name}.value",
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=tensor,
    )
    replace_node(graph, [node], [], [old], [stored])
    stored.name = old.name
    graph.register_initializer(stored)
    return (stored,)


def _tensor(node: ir.Node) -> ir.TensorProtocol:
    if "value" in node.attributes:
        return node.attributes["value"].as_tensor()
    array = constant_of(node.outputs[0])
    assert array is not None
    if array.dtype.kind != "O":
        return ir.tensor(array)
    texts = [t.encode() for t in array.reshape(-1).tolist()]
    return ir.StringTensor(texts, shape=ir.Shape(array.shape))
