"""Round a weight so that the errors of its inputs cancel.

With q * s for w and inputs of second moment H, the squared error of the products is

    d^T H d = |A^T d|^2,    d = w - q * s,    H = A A^T with A upper triangular.

Component i of A^T d depends on d[0..i] only. So integers are chosen one after the other, each for
the target that makes its component vanish given the errors before it: Optimal Brain Quantization in
a fixed order (GPTQ: Frantar et al. 2022, arXiv:2210.17323). Then single integers move as long as
that makes the error smaller, now that the later ones are known.

Arrays are laid out [groups, inputs, channels]: a step looks at one input of all channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from passes.quantize.stepping import Limits, error_of, refined, stepwise

__all__ = ["Curvature", "best_rounding", "curvature_of", "less_wrong"]

_SWEEPS = 1
_RIDGE = 0.01
_RIDGE_OF_FEW = 0.1
"""Times inputs per row: directions that few rows do not show must not look free of error."""

_MOST_NUMBERS = 1 << 22
"""Candidate weights that are rounded at a time: 16 MiB an array."""


@dataclass(frozen=True, slots=True)
class Curvature:
    """The second moment of the inputs of a layer, prepared for rounding.

    Attributes:
        order: int [inputs]: in which order inputs are rounded, the largest moments first.
        moment: float32 [groups, inputs, inputs], in that order, with a ridge.
        factor: float32, same shape: A^T of `moment`, each row divided by its diagonal element.
        pivots: float32 [groups, inputs]: the squares of those elements.
    """

    order: np.ndarray
    moment: np.ndarray
    factor: np.ndarray
    pivots: np.ndarray


def curvature_of(moment: np.ndarray, rows: int) -> Curvature:
    """Prepare the mean second moment [groups, inputs, inputs] of `rows` inputs."""
    inputs = moment.shape[1]
    diagonal = np.diagonal(moment, axis1=1, axis2=2)
    order = np.argsort(-diagonal.sum(axis=0), kind="stable")
    sorted_ = moment[:, order][:, :, order].astype(np.float64)
    share = _RIDGE + _RIDGE_OF_FEW * min(1.0, inputs / max(1, rows))
    ridge = share * diagonal.mean(axis=1, dtype=np.float64)
    ridge = np.where(ridge > 0, ridge, 1.0)
    sorted_[:, range(inputs), range(inputs)] += ridge[:, None]
    upper = np.linalg.cholesky(sorted_[:, ::-1, ::-1])[:, ::-1, ::-1]
    pivots = np.diagonal(upper, axis1=1, axis2=2)
    factor = np.swapaxes(upper, 1, 2) / pivots[:, :, None]
    parts = (sorted_, factor, pivots**2)
    return Curvature(order, *(np.ascontiguousarray(part, np.float32) for part in parts))


def best_rounding(
    weight: np.ndarray, scales: np.ndarray, curvature: Curvature, limits: Limits
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return integers, scales and errors of the best of several scales per channel.

    Args:
        weight: float32 [groups, inputs, channels].
        scales: float32 [candidates, groups, channels].
        curvature: Of the inputs.
        limits: Of the integers.

    Returns:
        float32 [groups, inputs, channels], and twice float32 [groups, channels].
    """
    groups, inputs, channels = weight.shape
    integers = np.empty_like(weight)
    scale, error = (np.empty((groups, channels), np.float32) for _ in range(2))
    many = max(1, _MOST_NUMBERS // (groups * inputs * len(scales)))
    order, within = curvature.order, limits.in_order(curvature.order)
    for start in range(0, channels, many):
        part = slice(start, start + many)
        chosen = _best(weight[:, order, part], scales[:, :, part], curvature, within)
        integers[:, order, part], scale[:, part], error[:, part] = chosen
    return integers, scale, error


def less_wrong(
    weight: np.ndarray,
    new: tuple[np.ndarray, np.ndarray],
    old: tuple[np.ndarray, np.ndarray],
    moments: Sequence[np.ndarray],
) -> np.ndarray:
    """Tell which channels have a smaller error with `new` than with `old`, by every moment.

    Args:
        weight: float32 [groups, inputs, channels].
        new: Integers, shaped like the weight, and scales [groups, channels].
        old: The same.
        moments: Of the inputs, each [groups, inputs, inputs].

    Returns:
        bool [groups, channels].
    """
    better = np.ones(new[1].shape, bool)
    for moment in moments:
        errors = [error_of(weight / s[:, None] - q, s, moment) for q, s in (new, old)]
        better &= errors[0] < errors[1]
    return better


def _best(
    weight: np.ndarray, scales: np.ndarray, curvature: Curvature, limits: Limits
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    groups, inputs, channels = weight.shape
    side_by_side = np.moveaxis(scales, 0, 1).reshape(groups, -1)
    tried = np.tile(weight, (1, 1, len(scales))) / side_by_side[:, None]
    integers, errors = stepwise(tried, curvature.factor, curvature.pivots, limits)
    best = (errors * side_by_side**2).reshape(groups, len(scales), channels).argmin(axis=1)
    column = best * channels + np.arange(channels)
    scale = np.take_along_axis(side_by_side, column, axis=1)
    exact = weight / scale[:, None]
    kept = np.take_along_axis(integers, column[:, None].repeat(inputs, axis=1), axis=2)
    kept = refined(exact, kept, curvature.moment, limits, _SWEEPS)
    return kept, scale, error_of(exact - kept, scale, curvature.moment)
