from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.qtypes import ActivationRange
from passes.quantize.grid import Grid, join, signed_grid, unsigned_grid

_LOW = st.floats(-1e6, 0, width=32)
_HIGH = st.floats(0, 1e6, width=32)


def _range(low: float, high: float) -> ActivationRange:
    return ActivationRange(low=low, high=high, method="minmax")


def rounded(array: np.ndarray, grid: Grid) -> np.ndarray:
    least, most = grid.integer_bounds
    integers = np.clip(np.rint(array / grid.scale) + grid.zero_point, least, most)
    return np.asarray((integers - grid.zero_point) * grid.scale)


@settings(deadline=None, max_examples=60)
@given(low=_LOW, high=_HIGH)
def test_values_in_range_move_by_half_a_step_at_most(low: float, high: float) -> None:
    inside = np.linspace(low, high, 101)
    for grid in (signed_grid(_range(low, high)), unsigned_grid(_range(low, high))):
        assert grid.scale > 0
        assert np.isfinite(grid.scale)
        error = np.abs(rounded(inside, grid) - inside)
        assert np.all(error <= grid.scale * 0.51 + np.abs(inside) * 1e-6)


@settings(deadline=None, max_examples=60)
@given(low=_LOW, high=_HIGH)
def test_zero_is_on_the_grid(low: float, high: float) -> None:
    for grid in (signed_grid(_range(low, high)), unsigned_grid(_range(low, high))):
        assert rounded(np.zeros(1), grid)[0] == 0
        least, most = grid.integer_bounds
        assert least <= grid.zero_point <= most


def test_the_signed_grid_is_symmetric() -> None:
    grid = signed_grid(_range(-2.0, 6.35))
    assert grid.zero_point == 0
    assert grid.zero_point_array.dtype == np.int8
    assert np.isclose(grid.scale, 0.05)


def test_the_unsigned_grid_of_a_relu_starts_at_zero() -> None:
    grid = unsigned_grid(_range(0.0, 2.55))
    assert (grid.zero_point, grid.low) == (0, 0.0)
    assert np.isclose(grid.high, 2.55)


def test_a_value_that_was_always_zero_gets_a_usable_scale() -> None:
    for grid in (signed_grid(_range(0, 0)), unsigned_grid(_range(0, 0))):
        assert grid.scale > 1e-3


def test_a_join_holds_all() -> None:
    joined = join([_range(-1, 2), _range(-3, 1)])
    assert (joined.low, joined.high) == (-3, 2)
