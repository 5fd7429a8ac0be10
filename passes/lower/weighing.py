"""Integers of a unit's weight, and the constants that join it: what both spellings agree on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of
from optcc.passkit.qtypes import PerAxis, QuantUnit
from passes.lower.saturation import least_safe_scale
from passes.quantize.grid import Grid
from passes.quantize.weights import QuantizedWeight, quantize_weight

__all__ = ["bias_input", "bias_row", "quantized_weight", "shift_bias"]

_MOST_HEADROOM = float(2**29)


def quantized_weight(
    root: ir.Node, unit: QuantUnit, grid: Grid, qmax: int, *, safe_pairs: bool
) -> QuantizedWeight:
    """Return the weight of `root` as integers, one scale per output channel.

    A scale is large enough for the bias to fit into int32 on the grid of the products: ONNX Runtime
    makes it so when it loads the model, whether it is spelled or not, and would saturate it.

    Args:
        root: The weighted node.
        unit: Whose weighted node it is.
        grid: Of its data.
        qmax: Largest magnitude of the integers.
        safe_pairs: Keep sums of neighbouring products within 16 bits; see `saturation`.
    """
    array = constant_of(root.inputs[1])
    assert array is not None
    assert isinstance(unit.granularity, PerAxis)
    numbers, axis = np.asarray(array, np.float32), unit.granularity.axis
    least = np.zeros(numbers.shape[axis])
    if safe_pairs:
        least = least_safe_scale(numbers, axis)
    bias = bias_row(root, unit)
    if bias is not None:
        largest = np.abs(bias).reshape(-1, len(least)).max(axis=0)
        least = np.maximum(least, largest / (grid.scale * _MOST_HEADROOM))
    return quantize_weight(numbers, axis, qmax, least)


def bias_input(nodes: list[ir.Node]) -> tuple[ir.Node, int] | None:
    """Return where a unit reads its bias; None when there is no place for one."""
    root = nodes[0]
    if root.op_type != "MatMul":
        return root, 2
    if len(nodes) < 2 or nodes[1].op_type != "Add":
        return None
    return nodes[1], 1 if nodes[1].inputs[0] is root.outputs[0] else 0


def bias_row(root: ir.Node, unit: QuantUnit) -> np.ndarray | None:
    """Return the constant bias that `root` itself adds, one number per output channel."""
    array = constant_of(root.inputs[2]) if len(root.inputs) > 2 else None
    if array is None:
        return None
    row = np.asarray(array, np.float64).reshape(-1)
    groups = root.attributes.get_int("group", 1) if root.op_type == "ConvTranspose" else 1
    return np.broadcast_to(row, (channels_of(root, unit) * groups,))


def channels_of(root: ir.Node, unit: QuantUnit) -> int:
    """Return the number of indices of the weight's scale axis."""
    weight = root.inputs[1]
    assert weight is not None
    assert weight.shape is not None
    assert isinstance(unit.granularity, PerAxis)
    return int(weight.shape.numpy()[unit.granularity.axis])


def shift_bias(graph: ir.Graph, nodes: list[ir.Node], shift: np.ndarray) -> bool:
    """Add `shift`, one number per output channel, to the bias of a unit.

    Returns:
        False when the unit has no place for a bias, or one that is not constant.
    """
    place = bias_input(nodes)
    if place is None:
        return False
    node, index = place
    old = node.inputs[index] if len(node.inputs) > index else None
    array = np.zeros(1, np.float32) if old is None else constant_of(old)
    if array is None:
        return False
    name = f"{nodes[0].name}.bias" if old is None else f"{old.name}"
    shifted = (np.asarray(array, np.float64) + shift).astype(np.float32)
    node.resize_inputs(max(index + 1, len(node.inputs)))
    node.replace_input_with(index, add_constant(graph, f"{name}.corrected", shifted))
    return True
