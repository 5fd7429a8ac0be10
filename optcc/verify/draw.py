"""Draw probe contents: from what a value was seen to hold, or from its type alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.verify.numeric import is_float
from optcc.verify.observe import Seen

__all__ = ["SPREADS", "Spread", "draw_like", "draw_spread", "guess_seen"]

_UNKNOWN_DIM = 3
_MOST_REACH = 1e3
_PERIOD = 16381
"""Numbers drawn for one value; a prime, so that they repeat at other places of each axis."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a probe goes beyond what was seen.

    Attributes:
        share: Share of the elements that go far; the others are normal numbers.
        times: How many times a typical magnitude the far ones may be.
        floor: How far they may go at least, whatever was seen.
        usual: Scale of the others, in typical magnitudes.
    """

    share: float
    times: float = 0.0
    floor: float = 1e-3
    usual: float = 1.0


SPREADS = (
    Spread(share=0.25, times=4.0),
    Spread(share=1.0, times=8.0, floor=8.0),
    Spread(share=1.0, times=32.0, floor=32.0),
    Spread(share=0.0, usual=1.0 / 32.0),
)
"""Some far among the usual; all far, where GELU, hard swish and Clip at 6 have stopped bending; so
far that sums of few terms are large too; all small, where an epsilon counts."""


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
    count = int(np.prod(seen.shape, dtype=np.int64))
    picks = rng.integers(0, seen.sample.size, min(count, _PERIOD))
    return _filled(seen.sample[picks], seen.shape)


def draw_spread(
    seen: Seen,
    rng: np.random.Generator,
    *,
    fixed: bool,
    reach: float = 0.0,
    spread: Spread = SPREADS[0],
) -> np.ndarray:
    """Draw floats that also go beyond what was seen; everything else as `draw_like`.

    A rewrite must hold for whatever flows in. Without such values nobody would notice that a Clip
    is lost which the usual values never reach, or an epsilon that only small values feel.

    Args:
        seen: What the value was in one probe.
        rng: The only source of randomness.
        fixed: The value never depends on data, so only what was seen is possible.
        reach: Largest bound that the region clips at.
        spread: How far to go.
    """
    if fixed or not is_float(seen.dtype):
        return draw_like(seen, rng, fixed=fixed)
    typical, largest = _magnitudes(seen)
    limit = max(spread.times * typical, 2.0 * largest, 2.0 * reach, spread.floor)
    count = min(int(np.prod(seen.shape, dtype=np.int64)), _PERIOD)
    even = (rng.permutation(count) + 0.5) * (2.0 / max(1, count)) - 1.0  # both far ends, always
    scale = spread.usual * (typical if typical > 1e-6 else limit / 4.0)
    usual = rng.standard_normal(count) * scale
    drawn = np.where(rng.random(count) < spread.share, even * limit, usual)
    return _filled(drawn.astype(seen.dtype), seen.shape)


def _filled(drawn: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Repeat `drawn` until it fills `shape`; its length is prime, so no two rows are alike."""
    return np.resize(drawn, shape)


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
