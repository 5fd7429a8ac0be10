"""Bytes in and bytes out of the in-memory graph: the only module that touches protobuf."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

__all__ = ["infer_values", "to_bytes"]

_KEEP_BYTES = 1 << 12
"""Smaller initializers stay in a model that is only looked at: shapes may follow from them."""


def to_bytes(model: ir.Model) -> bytes:
    """Serialize `model`, weights inline, the same bytes for the same graph."""
    proto = ir.to_proto(model)
    return bytes(proto.SerializeToString(deterministic=True))


def clone(model: ir.Model) -> ir.Model:
    """Copy nodes and values; weights are shared."""
    return model.clone()


def without_weights(model: ir.Model) -> ir.Model:
    """Copy `model` with the data of large initializers left out, types and dims kept.

    The copy is for looking at: it cannot be run.
    """
    light = model.clone()
    for graph in light.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > _KEEP_BYTES:
                value.const_value = _absent(tensor)
    return light


def _absent(tensor: ir.TensorProtocol) -> ir.ExternalTensor:
    shape = ir.Shape(tensor.shape.numpy())
    name = tensor.name or ""
    return ir.ExternalTensor("absent", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name)


def infer_values(model: ir.Model, *, strict: bool = False) -> list[dict[str, ir.TypeAndShape]]:
    """Infer types and shapes of inner values from inputs and weights alone.

    Args:
        model: It is not changed; what its inner values say is not used.
        strict: Whether a contradiction raises.

    Returns:
        One table by value name for each graph, in the order of `walk.all_graphs`.

    Raises:
        onnx.shape_inference.InferenceError: In strict mode, nodes contradict each other.
    """
    light = without_weights(model)
    for graph in light.graphs():
        for value in (v for node in graph for v in node.outputs if not v.is_graph_output()):
            value.type, value.shape = None, None
    proto = ir.to_proto(light)
    inferred = onnx.shape_inference.infer_shapes(
        proto, check_type=strict, strict_mode=strict, data_prop=True
    )
    return [_table(graph) for graph in _graph_protos(inferred.graph)]


def _table(graph: onnx.GraphProto) -> dict[str, ir.TypeAndShape]:
    return {info.name: ir.from_proto(info.type) for info in graph.value_info}


def _graph_protos(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    stack = [graph]
    while stack:
        current = stack.pop()
        yield current
        inner: list[onnx.GraphProto] = []
        for attribute in (a for n in current.node for a in n.attribute):
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner.append(attribute.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                inner.extend(attribute.graphs)
        stack.extend(reversed(inner))
