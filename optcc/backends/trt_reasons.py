"""Says why a node that was quantized runs in float all the same, from how it is spelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["why_not_narrow"]

_MOVES_DATA = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"})


def why_not_narrow(node: ir.Node, wanted: str) -> str:
    """Return one sentence; the builder itself gives no reason."""
    if wanted not in ("int8", "fp8"):
        return f"its kernel neither reads nor writes {wanted} data"
    if node.op_type == "ConvTranspose":
        return f"TensorRT-RTX has no {wanted} kernel for ConvTranspose"
    if node.op_type not in ("Conv", "Gemm", "MatMul"):
        return f"its kernel neither reads nor writes {wanted} data"
    activation, weight = _operand(node, 0), _operand(node, 1)
    problem = _activation_problem(activation) or _weight_problem(node, weight)
    return problem or "the builder chose a float kernel"


def _operand(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _activation_problem(value: ir.Value | None) -> str:
    if value is None:
        return "its first input is missing"
    dequantize, _ = _dequantize_before(value)
    if dequantize is None:
        return f"its input {value.name!r} has no Q/DQ"
    if _is_per_axis(dequantize):
        return f"the scale of its input {value.name!r} is per channel; it must be one number"
    return ""


def _weight_problem(node: ir.Node, value: ir.Value | None) -> str:
    if value is None:
        return "its weight is missing"
    dequantize, transposed = _dequantize_before(value)
    if dequantize is None:
        return f"its weight {value.name!r} is not quantized"
    if not _is_per_axis(dequantize):
        return ""
    rank = _rank(dequantize.inputs[0])
    axis, wants = dequantize.attributes.get_int("axis", 1), _output_axis(node, rank)
    if rank is None or wants is None:
        return ""
    axis += rank if axis < 0 else 0
    wants = rank - 1 - wants if transposed and rank == 2 else wants
    if axis == wants:
        return ""
    return f"the scale of its weight runs along axis {axis}; its output channels are axis {wants}"


def _dequantize_before(value: ir.Value) -> tuple[ir.Node | None, bool]:
    """Find the DequantizeLinear that feeds `value`, through nodes that only move data."""
    transposed = False
    producer = value.producer()
    while producer is not None and producer.op_type in _MOVES_DATA and producer.inputs[0]:
        transposed ^= producer.op_type == "Transpose"
        producer = producer.inputs[0].producer()
    if producer is not None and producer.op_type == "DequantizeLinear":
        return producer, transposed
    return None, transposed


def _is_per_axis(dequantize: ir.Node) -> bool:
    scale = dequantize.inputs[1]
    if scale is None or scale.shape is None:
        return False
    return any(dim != 1 for dim in scale.shape.dims)


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _output_axis(node: ir.Node, rank: int | None) -> int | None:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    return None if rank is None else rank - 1
