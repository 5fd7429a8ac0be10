"""Draw probe contents: from what a value was seen to hold, or from its type alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.verify.numeric import is_float
from optcc.verify.observe import Seen

__all__ = ["draw_like", "draw_spread", "guess_seen"]

_UNKNOWN_DIM = 3
_MOST_REACH = 1e3
_FAR_SHARE = 0.25
_FAR, _WIDE = 4.0, 8.0
_FLOOR = 8.0
"""Least reach of the wide feed: there the usual activations (GELU, hard swish, Clip at 6) have long
stopped bending, and what is small on a probe may be large on real data."""


def draw_like(seen: Seen, rng: np.random.Generator, *, fixed: bool) -> np.ndarray:
    """Draw an array of the distribution that was seen.

    What was kept whole comes back as it was: small values may be sizes, positions or masks that
    depend on each other. A bool that depends on the data is mixed, so that both branches count.

    Args:
        seen: What the value was in one probe.
        rng: The only source of randomness.
        fixed: The value never depends on data, so only what was seen is possible.
    """
    if seen.dtype == np.bool_ and not fixed:
        return np.asarray(rng.random(seen.shape) < 0.5)
    if seen.value is not None:
        return seen.value
    if seen.sample.size == 0:
        return np.zeros(seen.shape, seen.dtype)
    picks = rng.integers(0, seen.sample.size, seen.shape)
    return seen.sample[picks]


def draw_spread(
    seen: Seen,
    rng: np.random.Generator,
    *,
    fixed: bool,
    reach: float = 0.0,
    wide: bool = False,
) -> np.ndarray:
    """Draw floats that also go beyond what was seen; everything else as `draw_like`.

    A rewrite must hold for whatever flows in. Without such values nobody would notice that a Clip
    is lost which the usual values never reach.

    Args:
        seen: What the value was in one probe.
        rng: The only source of randomness.
        fixed: The value never depends on data, so only what was seen is possible.
        reach: Largest bound that the region clips at.
        wide: Let all elements go far, evenly spaced over both signs, so that even a value of a
            few elements has large ones; else a quarter of them, and the rest as usual.
    """
    if fixed or not is_float(seen.dtype):
        return draw_like(seen, rng, fixed=fixed)
    typical, largest = _magnitudes(seen)
    limit = max((_WIDE if wide else _FAR) * typical, 2.0 * largest, 2.0 * reach)
    limit = max(limit, _FLOOR if wide else 1e-3)
    count = int(np.prod(seen.shape, dtype=np.int64))
    even = (rng.permutation(count) + 0.5) * (2.0 / max(1, count)) - 1.0
    far = even.reshape(seen.shape) * limit
    if wide:
        return np.asarray(far).astype(seen.dtype)
    usual = rng.standard_normal(seen.shape) * (typical if typical > 1e-6 else limit / 4.0)
    return np.where(rng.random(seen.shape) < _FAR_SHARE, far, usual).astype(seen.dtype)


def _magnitudes(seen: Seen) -> tuple[float, float]:
    """Return a typical and the largest magnitude of what was seen, extreme values left out."""
    finite = seen.sample[np.isfinite(seen.sample.astype(np.float64))].astype(np.float64)
    magnitudes = np.abs(finite[np.abs(finite) < _MOST_REACH])
    if not magnitudes.size:
        return 0.0, 0.0
    return float(magnitudes.std() + magnitudes.mean()), float(magnitudes.max())


def guess_seen(value: ir.Value, probes: int) -> tuple[Seen, ...] | None:
    """Make up what `value` may be, one entry per probe, from its type and shape alone.

    Returns:
        None when the type or rank is unknown, or when it holds integers, which may be positions.
    """
    if value.dtype is None or value.shape is None or value.dtype.is_integer():
        return None
    dtype = np.dtype(value.dtype.numpy())
    if not is_float(dtype) and dtype != np.bool_:
        return None
    shapes = [_dims(value.shape.dims, k) for k in range(probes)]
    grid = np.linspace(-2.0, 2.0, 512).astype(dtype)
    return tuple(Seen(dtype, shape, None, grid) for shape in shapes)


def _dims(dims: Sequence[int | ir.SymbolicDim], probe: int) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else _UNKNOWN_DIM + probe for d in dims)
