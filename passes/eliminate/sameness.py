"""Keys that are equal exactly when two constants, or two nodes, are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

__all__ = ["RANDOM_OPS", "bytes_key", "head_key", "node_key", "shape_key"]

_HEAD = 1024

RANDOM_OPS = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators that may give another result each time; Dropout is one in training mode."""


def shape_key(tensor: ir.TensorProtocol) -> Hashable:
    """Return type and shape, without a look at the data."""
    return int(tensor.dtype), tuple(tensor.shape.dims)


def head_key(tensor: ir.TensorProtocol) -> Hashable:
    """Return type, shape and the first elements: what differs here is not the same."""
    if tensor.dtype == ir.DataType.STRING:
        return bytes_key(tensor)
    return shape_key(tensor), tensor.numpy().reshape(-1)[:_HEAD].tobytes()


def bytes_key(tensor: ir.TensorProtocol) -> Hashable:
    """Return type, shape and a digest of the data."""
    if tensor.dtype == ir.DataType.STRING:
        return shape_key(tensor), tuple(tensor.numpy().reshape(-1).tolist())
    array = np.ascontiguousarray(tensor.numpy())
    return shape_key(tensor), hashlib.sha256(array.view(np.uint8).reshape(-1).data).digest()


def node_key(node: ir.Node) -> Hashable | None:
    """Return what determines the outputs of `node`, or None when they must not be shared."""
    if node.domain != "" or node.op_type in RANDOM_OPS or _may_be_random(node):
        return None
    attributes: list[Hashable] = []
    for name in sorted(node.attributes):
        key = _attribute_key(node.attributes[name])
        if key is None:
            return None
        attributes.append((name, key))
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    present = tuple(bool(v.name) for v in node.outputs)
    return node.op_type, node.overload, tuple(attributes), tuple(inputs), present


def _may_be_random(node: ir.Node) -> bool:
    return node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None


def _attribute_key(attribute: ir.Attr) -> Hashable | None:
    """Return a key of type and value; None for graphs, references and what is not plain data."""
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        return bytes_key(attribute.as_tensor())
    plain = (
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    )
    return (int(attribute.type), repr(attribute.value)) if attribute.type in plain else None
