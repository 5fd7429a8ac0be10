"""Arithmetic on weights by output channel, in float64, and the way back to their type."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.passkit.rewrite import Reject

__all__ = ["FLOATS", "narrow", "output_channels", "per_channel", "scale_kernel"]

FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
)
"""Types whose arithmetic may be regrouped up to rounding."""


def output_channels(node: ir.Node, weight: tuple[int, ...]) -> int:
    """Return the channel count of what a Conv or ConvTranspose with this weight shape gives."""
    if node.op_type == "ConvTranspose":
        return weight[1] * node.attributes.get_int("group", 1)
    return weight[0]


def scale_kernel(node: ir.Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Multiply the filters of each output channel.

    Args:
        node: Conv or ConvTranspose; decides on the layout.
        weight: Conv [out, in/group, *kernel]; ConvTranspose [in, out/group, *kernel].
        scale: [out].

    Returns:
        float64, the shape of `weight`.
    """
    wide = weight.astype(np.float64)
    kernel = (1,) * (weight.ndim - 2)
    if node.op_type != "ConvTranspose":
        return np.asarray(wide * scale.reshape(-1, 1, *kernel))
    group = node.attributes.get_int("group", 1)
    grouped = wide.reshape(group, weight.shape[0] // group, *weight.shape[1:])
    factors = scale.reshape(group, 1, weight.shape[1], *kernel)
    return np.asarray((grouped * factors).reshape(weight.shape))


def per_channel(constant: np.ndarray, rank: int, axis: int, channels: int) -> np.ndarray | None:
    """Return the constant as one number per channel, or None when it says more than that.

    Args:
        constant: Operand of a broadcasting operator.
        rank: Of the other operand; a constant of higher rank would add dims.
        axis: The channel axis of the other operand.
        channels: Its size.

    Returns:
        [channels], float64.
    """
    if constant.ndim > rank:
        return None
    dims = (1,) * (rank - constant.ndim) + constant.shape
    if any(d != 1 for k, d in enumerate(dims) if k != axis) or dims[axis] not in (1, channels):
        return None
    return np.broadcast_to(constant.reshape(-1).astype(np.float64), (channels,))


def narrow(array: np.ndarray, like: np.ndarray, what: str) -> np.ndarray:
    """Return `array` in the type of `like`.

    Raises:
        Reject: A number does not fit that type.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(like.dtype)
    if not np.isfinite(result).all():
        raise Reject(f"the folded {what} does not fit {like.dtype}")
    return result
