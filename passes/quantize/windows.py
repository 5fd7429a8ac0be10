"""The inputs that each sum of a layer runs over: im2col, at chosen positions only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of

__all__ = ["Geometry", "geometry_of", "input_rows"]

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a layer reads its data; no kernel means a matrix that reads the last axis.

    Attributes:
        kernel: Spatial dims of the kernel.
        pads: Begin of each axis, then end of each; empty where `auto_pad` decides.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        groups: Into how many parts the input channels are cut.
    """

    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    auto_pad: str = "NOTSET"
    groups: int = 1


def geometry_of(node: ir.Node) -> Geometry:
    """Return how a Conv, Gemm or MatMul with a constant weight reads its data."""
    if node.op_type != "Conv":
        return Geometry()
    weight = constant_of(node.inputs[1])
    assert weight is not None
    kernel = weight.shape[2:]
    ones, zeros = (1,) * len(kernel), (0,) * (2 * len(kernel))

    def numbers(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(n) for n in node.attributes.get_ints(name, default) or default)

    return Geometry(
        kernel=tuple(int(d) for d in kernel),
        strides=numbers("strides", ones),
        dilations=numbers("dilations", ones),
        pads=numbers("pads", zeros),
        auto_pad=node.attributes.get_string("auto_pad", "NOTSET") or "NOTSET",
        groups=node.attributes.get_int("group", 1) or 1,
    )


def input_rows(data: np.ndarray, geometry: Geometry, most: int) -> np.ndarray:
    """Return inputs of at most `most` sums, spread over samples and positions.

    Args:
        data: float32 [batch, channels, *spatial], or [..., inputs] for a matrix.
        geometry: How the layer reads it.
        most: The golden ratio spreads them; no draw is involved.

    Returns:
        [groups, rows, inputs], the inputs in the order of the weight.
    """
    if not geometry.kernel:
        flat = data.reshape(-1, data.shape[-1])
        return np.asarray(flat[_spread(len(flat), most)][None])
    padded = np.pad(data, [(0, 0), (0, 0), *_padding(data.shape[2:], geometry)])
    spans = [d * (k - 1) + 1 for k, d in zip(geometry.kernel, geometry.dilations, strict=True)]
    steps = list(zip(padded.shape[2:], spans, geometry.strides, strict=True))
    counts = [max(0, (size - span) // stride + 1) for size, span, stride in steps]
    chosen = _spread(len(data) * math.prod(counts), most)
    sample, *corners = np.unravel_index(chosen, (len(data), *counts))
    starts = [c * s for c, s in zip(corners, geometry.strides, strict=True)]
    base = np.ravel_multi_index((sample, np.zeros_like(sample), *starts), padded.shape)
    offsets = _offsets(padded.shape, geometry)
    rows = padded.reshape(-1)[base[None, :, None] + offsets[:, None, :]]
    return np.asarray(rows)


def _offsets(dims: Sequence[int], geometry: Geometry) -> np.ndarray:
    """Return where the inputs of a sum lie behind its corner, [groups, inputs]."""
    axes = [np.arange(dims[1])]
    axes += [np.arange(k) * d for k, d in zip(geometry.kernel, geometry.dilations, strict=True)]
    strides = [math.prod(dims[axis + 1 :]) for axis in range(1, len(dims))]
    grids = np.meshgrid(*axes, indexing="ij")
    total = sum(grid * stride for grid, stride in zip(grids, strides, strict=True))
    return np.asarray(total).reshape(geometry.groups, -1)


def _padding(spatial: Sequence[int], geometry: Geometry) -> list[tuple[int, int]]:
    if not geometry.auto_pad.startswith("SAME"):
        half = len(spatial)
        pads = geometry.pads if geometry.auto_pad == "NOTSET" else (0,) * (2 * half)
        return list(zip(pads[:half], pads[half:], strict=True))
    found = []
    sizes = zip(spatial, geometry.kernel, geometry.strides, geometry.dilations, strict=True)
    for size, kernel, stride, dilation in sizes:
        covered = (math.ceil(size / stride) - 1) * stride + dilation * (kernel - 1) + 1
        total = max(0, covered - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if geometry.auto_pad == "SAME_UPPER" else (more, less))
    return found


def _spread(total: int, most: int) -> np.ndarray:
    """Return at most `most` of `range(total)`, none twice, in ascending order."""
    if total <= most:
        return np.arange(total)
    return np.unique((np.arange(1, most + 1) * _GOLDEN % 1.0 * total).astype(np.int64))
