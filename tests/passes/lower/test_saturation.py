from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.lower.saturation import keeps_pairs, least_safe_scale, partners
from passes.quantize.weights import quantize_weight


def _pair_extremes(data: np.ndarray) -> int:
    """Largest magnitude of what a 16-bit sum of two products with 0..255 can reach."""
    flat = data.reshape(len(data), -1).astype(int)
    if flat.shape[1] % 2:
        flat = np.pad(flat, ((0, 0), (0, 1)))
    pairs = flat.reshape(len(data), -1, 2)
    most = np.maximum(pairs, 0).sum(axis=2).max()
    least = np.minimum(pairs, 0).sum(axis=2).min()
    return int(255 * max(most, -least))


@settings(deadline=None, max_examples=60)
@given(
    dims=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    seed=st.integers(0, 999),
    magnitude=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_no_pair_of_products_leaves_16_bits(dims: list[int], seed: int, magnitude: float) -> None:
    drawn = np.random.default_rng(seed).standard_normal(dims) * magnitude
    weight = drawn.astype(np.float32)
    data = quantize_weight(weight, 0, 127, least_safe_scale(weight, 0)).data
    assert _pair_extremes(data) <= 32767
    if data.ndim > 2:
        assert _pair_extremes(np.moveaxis(data, 1, -1)) <= 32767


def test_columns_of_a_matrix_are_channels() -> None:
    weight = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], np.float32)
    assert np.allclose(least_safe_scale(weight, 1), [2 / 127, 1 / 127])


def test_opposite_neighbours_cost_nothing() -> None:
    weight = np.array([[1.0, -1.0, 0.5, 0.0]], np.float32)
    assert np.allclose(least_safe_scale(weight, 0), [1 / 127])


def test_partners_are_the_neighbours_of_both_orders() -> None:
    assert partners([5]) == [[1], [0], [3], [2], []]
    assert partners([2, 3]) == [[1, 3], [0, 4], [3, 5], [0, 2], [1, 5], [2, 4]]


@pytest.mark.parametrize(("beside", "sound"), [(64, True), (65, False), (-127, True)])
def test_one_pair_too_large_is_noticed(beside: int, sound: bool) -> None:
    data = np.zeros((2, 4, 3), np.int8)
    data[1, 2, 1], data[1, 3, 1] = 64, beside
    assert keeps_pairs(data, 0) is sound
    assert keeps_pairs(-data, 0) is sound
    assert keeps_pairs(data[..., 1], 0) is sound
