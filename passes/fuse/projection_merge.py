"""One product, a Split of it and the biases, for several products of one value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, fresh_name, replace_node
from optcc.passkit.rewrite import drop_unused_constants, sign_nodes
from passes.fuse.projection import Projection

__all__ = ["merge"]


def merge(graph: ir.Graph, members: Sequence[Projection], name: str) -> list[ir.Value]:
    """Replace `members` by one product.

    Args:
        graph: Holds all of them.
        members: Two or more, of one value and one kind, each with a reader.
        name: Of the pass, for the metadata of the new nodes.

    Returns:
        The values that now stand for their outputs.
    """
    outputs = [p.output for p in members]
    read = [v for p in members for n in p.nodes for v in n.inputs]
    stem = f"{outputs[0].name}.siblings"
    weight, nodes = _weight(graph, members, stem)
    product = _product(graph, members, weight, stem)
    split = _split(graph, members, product.outputs[0], stem)
    adds = {} if product.op_type == "Gemm" else _adds(graph, members, split)
    new = [*nodes, product, split, *adds.values()]
    sign_nodes(new, name)
    old = [n for p in members for n in p.nodes]
    parts = [adds[v].outputs[0] if v in adds else v for v in split.outputs]
    standing = replace_node(graph, old, new, outputs, parts)
    drop_unused_constants(read)
    return standing


def _weight(
    graph: ir.Graph, members: Sequence[Projection], stem: str
) -> tuple[ir.Value, list[ir.Node]]:
    """Put the matrices side by side, and the scales of those that are stored in int8."""
    axis = 1 - members[0].kind.transposes[1]
    arrays = [_array(p.stored) for p in members]
    stored = add_constant(graph, f"{stem}.weight", np.concatenate(arrays, axis=axis))
    first = members[0].dequantize
    if first is None:
        return stored, []
    scales = [_per_column(p, 1) for p in members]
    zeros = [_per_column(p, 2) for p in members]
    inputs = [stored, add_constant(graph, f"{stem}.scale", np.concatenate(scales))]
    inputs.append(add_constant(graph, f"{stem}.zero", np.concatenate(zeros)))
    attributes = {**first.attributes, "axis": ir.AttrInt64("axis", axis)}
    node = ir.Node("", "DequantizeLinear", inputs, attributes.values())
    node.outputs[0].name = fresh_name(graph, f"{stem}.dequantized")
    node.outputs[0].type = members[0].node.inputs[1].type if members[0].node.inputs[1] else None
    return node.outputs[0], [node]


def _array(value: ir.Value | None) -> np.ndarray:
    array = constant_of(value)
    assert array is not None
    return array


def _per_column(p: Projection, index: int) -> np.ndarray:
    """Return scale (1) or zero point (2) as one number per output channel."""
    assert p.dequantize is not None
    inputs = p.dequantize.inputs
    if index < len(inputs) and inputs[index] is not None:
        return np.broadcast_to(_array(inputs[index]).reshape(-1), (p.columns,))
    return np.zeros(p.columns, _array(p.stored).dtype)


def _product(
    graph: ir.Graph, members: Sequence[Projection], weight: ir.Value, stem: str
) -> ir.Node:
    first = members[0]
    gemm = any(p.node.op_type == "Gemm" for p in members)
    bias = _bias(graph, members, stem) if gemm else None
    inputs = [first.x, weight, *([] if bias is None else [bias])]
    node = ir.Node("", "Gemm" if gemm else "MatMul", inputs, _attributes(first, gemm))
    node.outputs[0].name = fresh_name(graph, stem)
    node.outputs[0].type = first.output.type
    return node


def _adds(
    graph: ir.Graph, members: Sequence[Projection], split: ir.Node
) -> dict[ir.Value, ir.Node]:
    """Add each bias behind the Split: TensorRT-RTX runs an int8 product in float otherwise."""
    dtype = (members[0].kind.dtype or ir.DataType.FLOAT).numpy()
    nodes: dict[ir.Value, ir.Node] = {}
    for member, part in zip(members, split.outputs, strict=True):
        if member.bias is not None:
            name = f"{member.output.name}.bias"
            bias = add_constant(graph, name, member.bias.astype(dtype))
            nodes[part] = ir.Node("", "Add", [part, bias])
    return nodes


def _attributes(p: Projection, gemm: bool) -> list[ir.Attr]:
    if not gemm:
        return []
    numbers = dict(zip(("transA", "transB"), p.kind.transposes, strict=True))
    attributes: list[ir.Attr] = [ir.AttrInt64(k, v) for k, v in numbers.items() if v]
    if p.kind.alpha != 1.0:
        attributes.append(ir.AttrFloat32("alpha", p.kind.alpha))
    return attributes


def _bias(graph: ir.Graph, members: Sequence[Projection], stem: str) -> ir.Value | None:
    """Put the biases side by side; who has none gets zeros."""
    if all(p.bias is None for p in members):
        return None
    rows = [np.zeros(p.columns) if p.bias is None else p.bias for p in members]
    dtype = (members[0].kind.dtype or ir.DataType.FLOAT).numpy()
    return add_constant(graph, f"{stem}.bias", np.concatenate(rows).astype(dtype))


def _split(graph: ir.Graph, members: Sequence[Projection], value: ir.Value, stem: str) -> ir.Node:
    sizes = np.array([p.columns for p in members], np.int64)
    lengths = add_constant(graph, f"{stem}.sizes", sizes)
    axis = ir.AttrInt64("axis", -1)
    return ir.Node("", "Split", [value, lengths], [axis], num_outputs=len(members))
