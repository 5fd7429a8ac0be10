"""Make up inputs that stay within the ranges a model was calibrated for.

An int8 model is only promised to be good within its ranges: plain random numbers leave them, and
the error of what is clipped says nothing about the artifact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from optcc.errors import BackendError
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import RangeTable
from optcc.verify.numeric import is_float
from optcc.verify.reference import open_model

__all__ = ["MOST_CLIPPED", "clipped_share", "fit_inputs"]

_SCALES = (64.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 1 / 16)
_TRIED = 2
MOST_CLIPPED = 0.01
"""Share of elements beyond the ranges above which inputs are not of the calibrated kind: real
samples stay below a thousandth, noise goes beyond a twentieth."""

_SLACK = 1.02


def fit_inputs(model: ir.Model, feeds: Sequence[Feed], table: RangeTable) -> list[Feed] | None:
    """Scale float inputs, with or without their signs, as far as the ranges allow.

    Args:
        model: Whose values carry the names of the ranges, or some of them.
        feeds: Made up without regard to ranges.
        table: Of the calibration.

    Returns:
        The feeds changed alike; None when each way to change them clips more than one element in
        a hundred, or the ranges name no value of the model.
    """
    names = _names(model, table)
    if not names or not feeds:
        return None
    inner = [n for n in names if n not in feeds[0]]
    best: tuple[float, float, bool] | None = None
    try:
        with open_model(model, also=inner) as session:
            for scale, positive in _ways():
                changed = [_change(f, scale, positive) for f in feeds[:_TRIED]]
                seen = [session.run(f, inner) | f for f in changed]
                clipped, used = _fit(names, seen, table)
                if clipped <= MOST_CLIPPED and (best is None or used > best[0]):
                    best = (used, scale, positive)
    except BackendError:
        return None
    return None if best is None else [_change(f, best[1], best[2]) for f in feeds]


def clipped_share(model: ir.Model, feeds: Sequence[Feed], table: RangeTable) -> float:
    """Return the share of elements that the ranges cut off, at the mean over the values.

    Args:
        model: Whose values carry the names of the ranges, or some of them.
        feeds: The first few are run.
        table: Of the calibration.
    """
    names = _names(model, table)
    inner = [n for n in names if n not in feeds[0]]
    if not names:
        return 0.0
    try:
        with open_model(model, also=inner) as session:
            seen = [session.run(f, inner) | f for f in feeds[:_TRIED]]
    except BackendError:
        return 0.0
    return _fit(names, seen, table)[0]


def _names(model: ir.Model, table: RangeTable) -> list[str]:
    own = {v.name for n in model.graph for v in n.outputs} | {v.name for v in model.graph.inputs}
    return [n for n in table.signed if n in own and n in table.unsigned]


def _ways() -> Iterator[tuple[float, bool]]:
    for scale in _SCALES:
        yield scale, False
        yield scale, True


def _change(feed: Feed, scale: float, positive: bool) -> Feed:
    return {n: _changed(a, scale, positive) for n, a in feed.items()}


def _changed(array: np.ndarray, scale: float, positive: bool) -> np.ndarray:
    if not is_float(array.dtype):
        return array
    return np.asarray((np.abs(array) if positive else array) * array.dtype.type(scale))


def _fit(names: Sequence[str], seen: Sequence[Feed], table: RangeTable) -> tuple[float, float]:
    """Return the share of elements out of range and how far the ranges are used, at the mean."""
    outside, used = [], []
    for name in names:
        values = np.concatenate([np.asarray(s[name], np.float64).ravel() for s in seen])
        low = max(table.signed[name].low, table.unsigned[name].low)
        high = min(table.signed[name].high, table.unsigned[name].high)
        reach = max(-low, high) * _SLACK
        floor = low * _SLACK - 0.02 * reach
        outside.append(float(np.mean((values < floor) | (values > high * _SLACK + 0.02 * reach))))
        used.append(min(1.0, float(np.abs(values).max()) / reach) if values.size and reach else 0.0)
    return float(np.mean(outside)), float(np.mean(used))
