"""Compare numbers as a promise demands; tolerances follow from exactness and dtype alone.

A rounding error is judged against the largest magnitude of the reference: sums cancel, so a single
element may lose all of its digits while the tensor is right. Where a computation amplifies rounding
(a fold into a channel of tiny variance), the caller measures by how much and passes it as `noise`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import ml_dtypes
import numpy as np

from optcc.passkit.contract import Exactness

__all__ = [
    "Outcome",
    "Verdict",
    "compare",
    "cosine",
    "epsilon",
    "is_float",
    "max_abs",
    "ordinary",
    "provable",
    "sqnr_db",
    "uninformative",
    "worst",
]

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_ULPS = {"float64": 64.0, "float32": 64.0, "float16": 4.0, "bfloat16": 4.0}
_ONE_VALUE_SHARE = 0.95
_EXTREME = 1e4
_EXTREME_UNITS = 16.0


class Outcome(Enum):
    """What a comparison proves."""

    OK = "ok"
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one comparison.

    Attributes:
        max_error: Largest error over the largest magnitude of the reference; None when the
            arrays cannot be subtracted.
        allowed: What the promise allows for it; None when nothing is promised.
        reason: Why it is not OK; empty when it is.
    """

    outcome: Outcome
    max_error: float | None = None
    allowed: float | None = None
    reason: str = ""


def is_float(dtype: np.dtype) -> bool:
    """Tell whether `dtype` has rounding: the numpy floats and bfloat16."""
    return dtype.name in _EPSILON


def epsilon(dtype: np.dtype) -> float:
    """Return the spacing of `dtype` at 1."""
    return _EPSILON[dtype.name]


def provable(exactness: Exactness, narrow: np.dtype | None) -> Exactness:
    """Return the promise that a run of a graph with `narrow` inside can prove.

    The runtime computes half types in float32 and rounds only where a node has a kernel of its
    own for them, so the removal of an Identity changes bits that the promise does not speak of.
    """
    wide = narrow is None or epsilon(narrow) <= _EPSILON["float32"]
    return exactness if wide or exactness is not Exactness.BITWISE else Exactness.ROUNDING


def compare(
    reference: np.ndarray,
    got: np.ndarray,
    exactness: Exactness,
    dtype: np.dtype | None = None,
    *,
    noise: float = 0.0,
) -> Verdict:
    """Judge `got` against `reference`.

    Args:
        reference: What the computation gave before the change.
        got: What it gives after.
        exactness: The promise. LOSSY is measured and only refused when it is not the same kind
            of result: another shape or dtype, or non-finite where the reference is finite.
        dtype: Narrowest float type on the way, when that is not the type of the arrays.
        noise: Absolute error that rounding alone is measured to make here.

    Returns:
        OK, BROKEN, or INCONCLUSIVE when the reference has nothing finite to compare.
    """
    if reference.shape != got.shape:
        return _broken(f"shape {list(got.shape)} instead of {list(reference.shape)}")
    if reference.dtype != got.dtype:
        return _broken(f"type {got.dtype} instead of {reference.dtype}")
    if exactness is Exactness.BITWISE:
        return _compare_bits(reference, got)
    if not is_float(reference.dtype):
        return _compare_exact(reference, got, exactness)
    return _compare_floats(reference, got, exactness, _narrowest(reference.dtype, dtype), noise)


def _broken(reason: str) -> Verdict:
    return Verdict(Outcome.BROKEN, reason=reason)


def _narrowest(own: np.dtype, dtype: np.dtype | None) -> str:
    names = [own.name] if dtype is None else [own.name, dtype.name]
    return max(names, key=lambda n: _EPSILON.get(n, 0.0))


def _compare_bits(reference: np.ndarray, got: np.ndarray) -> Verdict:
    if _same_bits(reference, got):
        return Verdict(Outcome.OK, 0.0, 0.0)
    error = _relative_error(reference, got)
    return Verdict(Outcome.BROKEN, error, 0.0, "the bits differ")


def _same_bits(reference: np.ndarray, got: np.ndarray) -> bool:
    if reference.dtype.hasobject:
        return bool(np.array_equal(reference, got))
    return np.ascontiguousarray(reference).tobytes() == np.ascontiguousarray(got).tobytes()


def _relative_error(reference: np.ndarray, got: np.ndarray) -> float | None:
    if reference.dtype.hasobject or reference.size == 0:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        error = max_abs(reference, got)
    scale = _magnitude(_finite_part(_wide(reference)))
    return error / scale if scale > 0 and math.isfinite(error) else None


def _compare_exact(reference: np.ndarray, got: np.ndarray, exactness: Exactness) -> Verdict:
    if _same_bits(reference, got):
        return Verdict(Outcome.OK, 0.0, 0.0)
    error = _relative_error(reference, got)
    if exactness is Exactness.LOSSY:
        return Verdict(Outcome.OK, error, None)
    count = int(np.count_nonzero(reference != got))
    return Verdict(Outcome.BROKEN, error, 0.0, f"{count} of {reference.size} values differ")


def _compare_floats(
    reference: np.ndarray, got: np.ndarray, exactness: Exactness, narrow: str, noise: float
) -> Verdict:
    want, have = _wide(reference), _wide(got)
    finite = np.isfinite(want)
    if not np.isfinite(have[finite]).all():
        return _broken("not finite where the reference is")
    if not finite.any():
        return Verdict(Outcome.INCONCLUSIVE, reason="the reference is not finite anywhere")
    usual = ordinary(want)
    relative, scale = _error(want[usual], have[usual])
    if exactness is Exactness.LOSSY:
        return Verdict(Outcome.OK, relative, None)
    unit = _ULPS[narrow] * _EPSILON[narrow]
    allowed = unit + (noise / scale if scale > 0 else noise)
    if relative > allowed:
        text = f"error {relative:.3g} of the largest magnitude, {allowed:.3g} is allowed"
        return Verdict(Outcome.BROKEN, relative, allowed, text)
    extreme = finite & ~usual
    rtol = _EXTREME_UNITS * unit
    if extreme.any() and not np.allclose(have[extreme], want[extreme], rtol=rtol, atol=0.0):
        return _broken("other extreme values (more than 10000 times the median)")
    if not np.array_equal(want[~finite], have[~finite], equal_nan=True):
        reason = "other values where the reference is not finite"
        return Verdict(Outcome.INCONCLUSIVE, relative, allowed, reason)
    return Verdict(Outcome.OK, relative, allowed)


def ordinary(reference: np.ndarray) -> np.ndarray:
    """Return which elements belong to the bulk of a tensor.

    The largest number of a mask (-3.4e38 where attention is off) must not set the scale that all
    other errors are judged against. Extreme elements are those above 10000 times the median of
    the magnitudes that are not zero.
    """
    magnitudes = np.abs(_wide(reference))
    finite = np.isfinite(magnitudes)
    nonzero = magnitudes[finite & (magnitudes > 0)]
    if nonzero.size == 0:
        return np.asarray(finite)
    middle = float(np.partition(nonzero, (nonzero.size - 1) // 2)[(nonzero.size - 1) // 2])
    return np.asarray(finite & (magnitudes <= _EXTREME * middle))


def _error(want: np.ndarray, have: np.ndarray) -> tuple[float, float]:
    """Return the largest error over the largest magnitude, and that magnitude."""
    if want.size == 0:
        return 0.0, 0.0
    with np.errstate(over="ignore"):
        error = float(np.abs(want - have).max())
    scale = _magnitude(want)
    return (error / scale if scale > 0 else error), scale


def uninformative(references: list[np.ndarray]) -> str | None:
    """Say why these results of one computation on several probes prove nothing, or None.

    Args:
        references: One array per probe.

    Returns:
        A reason for references that are empty, not finite, zero, constant or saturated in every
        probe, or that do not depend on the probe.
    """
    kept = [_finite_part(_wide(r)) for r in references if not r.dtype.hasobject]
    kept = [k for k in kept if k.size]
    if not kept:
        return "the reference has no finite value"
    if not any(k.any() for k in kept):
        return "the reference is zero"
    if len(kept) > 1 and all(np.array_equal(kept[0], k) for k in kept[1:]):
        return "the reference is the same for every probe"
    if all(k.size == 1 for k in kept):
        return None if len(kept) > 1 else "the reference is one number"
    shares = [_one_value_share(k) for k in kept if k.size > 1]
    if min(shares) == 1.0:
        return "the reference is constant"
    if min(shares) > _ONE_VALUE_SHARE:
        return "the reference is saturated"
    return None


def _one_value_share(values: np.ndarray) -> float:
    """Return the largest share of elements that equal the least or the greatest value."""
    low, high = values.min(), values.max()
    count = max(np.count_nonzero(values == low), np.count_nonzero(values == high))
    return float(count) / values.size


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Join verdicts: the first broken one, else the first inconclusive one, else the largest error.

    No verdict at all is OK: there was nothing to compare.
    """
    for outcome in (Outcome.BROKEN, Outcome.INCONCLUSIVE):
        found = [v for v in verdicts if v.outcome is outcome]
        if found:
            return found[0]
    if not verdicts:
        return Verdict(Outcome.OK, 0.0, 0.0)
    return max(verdicts, key=lambda v: (v.max_error or 0.0) - (v.allowed or 0.0))


def max_abs(reference: np.ndarray, got: np.ndarray) -> float:
    """Return the largest absolute difference; 0 for empty arrays."""
    if reference.size == 0:
        return 0.0
    return float(np.abs(_wide(reference) - _wide(got)).max())


def sqnr_db(reference: np.ndarray, got: np.ndarray) -> float | None:
    """Return the signal to noise ratio in dB; None when both are equal.

    A zero reference with an error gives minus infinity.
    """
    want, have = _wide(reference), _wide(got)
    error = float(np.sum(np.square(want - have)))
    if error == 0.0:
        return None
    signal = float(np.sum(np.square(want)))
    return 10.0 * math.log10(signal / error) if signal > 0 else -math.inf


def cosine(reference: np.ndarray, got: np.ndarray) -> float:
    """Return the cosine of the angle between the two as flat vectors; 1 when both are zero."""
    want, have = _wide(reference).ravel(), _wide(got).ravel()
    norms = float(np.linalg.norm(want)) * float(np.linalg.norm(have))
    if norms == 0.0:
        return 1.0 if not want.any() and not have.any() else 0.0
    return float(np.dot(want, have)) / norms


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biu" or is_float(array.dtype) or array.dtype.kind == "V":
        return np.asarray(array, dtype=np.float64)
    if array.dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        return np.asarray(array, dtype=np.float64)
    return np.asarray(array)


def _finite_part(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)] if values.dtype.kind in "fc" else values.ravel()


def _magnitude(values: np.ndarray) -> float:
    return float(np.abs(values).max()) if values.size else 0.0
