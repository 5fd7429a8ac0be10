"""Makes what a narrow float type does to a graph visible on a CPU.

A CPU runtime computes fp16 graphs in fp32 and drops the Casts between neighbours, so that overflow
and rounding inside stay invisible. The simulated graph computes in fp32 and rounds every narrow
value by an explicit Cast to the narrow type and back, which the runtime keeps.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.io import clone
from optcc.graph.walk import graphs_of, taken_names

__all__ = ["simulate_narrow"]

_NARROW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_WIDE = ir.DataType.FLOAT
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")


def simulate_narrow(model: ir.Model) -> ir.Model:
    """Return a graph in fp32 that gives what `model` gives in its narrow types.

    Keeps: inputs and outputs with their names and types, and the names of all nodes.

    Args:
        model: Holds fp16 or bf16 values; it is not changed.
    """
    made = clone(model)
    names = set(taken_names(made.graph))
    for graph in graphs_of(made):
        for value in list(graph.initializers.values()):
            _widen_constant(value)
        for node in list(graph):
            _widen_attributes(node)
        is_main = graph is made.graph
        _widen_inputs(graph, names, is_main)
        for node in list(graph):
            for value in node.outputs:
                if value.dtype in _NARROW:
                    _round(graph, value, names, keeps_type=is_main)
    _forget_inner_shapes(made)
    return made


def _forget_inner_shapes(model: ir.Model) -> None:
    """Let the runtime infer them: some stem from declared outputs, whose symbols may lie."""
    for graph in graphs_of(model):
        for value in (v for node in graph for v in node.outputs):
            if not value.is_graph_output():
                value.shape = None


def _widen_constant(value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is not None and tensor.dtype in _NARROW and not value.is_graph_input():
        value.const_value = _wide_tensor(tensor, value.name)
        value.type = ir.TensorType(_WIDE)


def _widen_attributes(node: ir.Node) -> None:
    for attribute in list(node.attributes.values()):
        if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
            continue
        tensor = attribute.as_tensor()
        if tensor.dtype in _NARROW:
            wide = _wide_tensor(tensor, tensor.name)
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, wide)


def _wide_tensor(tensor: ir.TensorProtocol, name: str | None) -> ir.TensorProtocol:
    return ir.tensor(np.asarray(tensor.numpy()).astype(np.float32), name=name)


def _widen_inputs(graph: ir.Graph, names: set[str], is_main: bool) -> None:
    for value in graph.inputs:
        if value.dtype not in _NARROW:
            continue
        if not is_main:
            value.type = ir.TensorType(_WIDE)
            continue
        users = value.uses()
        cast = _cast(value, _WIDE, _fresh(f"{value.name}.wide", names))
        for node, index in users:
            node.replace_input_with(index, cast.outputs[0])
        _insert_first(graph, cast)


def _round(graph: ir.Graph, value: ir.Value, names: set[str], keeps_type: bool) -> None:
    """Send all readers of `value` through the narrow type and back."""
    node, narrow, name = value.producer(), value.dtype, value.name or ""
    assert node is not None
    assert narrow is not None
    users, is_output = value.uses(), value.is_graph_output()
    made: list[ir.Node] = []
    rounded = value
    if not _names_type(node, narrow):
        value.type = ir.TensorType(_WIDE)
        keeps_name = is_output and keeps_type
        if keeps_name:
            value.name = _fresh(f"{name}.wide", names)
        made.append(_cast(value, narrow, name if keeps_name else _fresh(f"{name}.narrow", names)))
        rounded = made[0].outputs[0]
    made.append(_cast(rounded, _WIDE, _fresh(f"{name}.rounded", names)))
    for user, index in users:
        user.replace_input_with(index, made[-1].outputs[0])
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = rounded if keeps_type else made[-1].outputs[0]
    graph.insert_after(node, made)


def _names_type(node: ir.Node, dtype: ir.DataType) -> bool:
    """Whether the result's type is written in the node (Cast), not taken from its inputs."""
    found = (node.attributes.get(name) for name in _TYPE_ATTRIBUTES)
    return any(a is not None and not a.is_ref() and a.value == int(dtype) for a in found)


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    output = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
    return ir.Node(
        "", "Cast", [value], [ir.AttrInt64("to", int(dtype))], outputs=[output], name=f"{name}.cast"
    )


def _insert_first(graph: ir.Graph, node: ir.Node) -> None:
    if len(graph) > 0:
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def _fresh(wanted: str, names: set[str]) -> str:
    name, count = wanted, 1
    while name in names:
        name, count = f"{wanted}.{count}", count + 1
    names.add(name)
    return name
