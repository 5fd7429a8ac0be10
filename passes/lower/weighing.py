"""Integers of a unit's weight, and the constants that join it: what both spellings agree on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of
from optcc.passkit.qtypes import PerAxis, QuantUnit, Rounding
from passes.lower.saturation import keeps_pairs, least_safe_scale
from passes.quantize.grid import Grid
from passes.quantize.weights import QuantizedWeight, quantize_weight

__all__ = ["bias_input", "bias_row", "least_bias_scale", "quantized_weight", "shift_bias"]

_MOST_HEADROOM = float(2**29)


def quantized_weight(
    root: ir.Node,
    unit: QuantUnit,
    grid: Grid,
    qmax: int,
    *,
    safe_pairs: bool,
    planned: Rounding | None = None,
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
        planned: Taken as it is while it keeps to all of this; a grid may have changed since.
    """
    array = constant_of(root.inputs[1])
    assert array is not None
    assert isinstance(unit.granularity, PerAxis)
    numbers, axis = np.asarray(array, np.float32), unit.granularity.axis
    least = least_bias_scale(root, unit, grid)
    if planned is not None and _fits(planned, numbers, axis, qmax, least, safe_pairs):
        return QuantizedWeight(planned.data, planned.scale, axis)
    if safe_pairs:
        least = np.maximum(least, least_safe_scale(numbers, axis))
    return quantize_weight(numbers, axis, qmax, least)


def least_bias_scale(root: ir.Node, unit: QuantUnit, grid: Grid) -> np.ndarray:
    """Return per channel the least scale of the weight at which the bias fits into int32."""
    least = np.zeros(channels_of(root, unit))
    bias = bias_row(root, unit)
    if bias is None:
        return least
    largest = np.abs(bias).reshape(-1, len(least)).max(axis=0)
    return np.asarray(largest / (grid.scale * _MOST_HEADROOM))


def _fits(
    planned: Rounding,
    weight: np.ndarray,
    axis: int,
    qmax: int,
    least: np.ndarray,
    safe_pairs: bool,
) -> bool:
    if planned.data.shape != weight.shape or planned.scale.shape != least.shape:
        return False
    small = np.abs(planned.data.astype(np.int32)).max(initial=0) <= qmax
    large = np.all(planned.scale >= least.astype(np.float32))
    return bool(small and large and (not safe_pairs or keeps_pairs(planned.data, axis)))


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
