from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.quantize.weights import quantize_weight


def _restored(weight: np.ndarray, axis: int, qmax: int = 127) -> np.ndarray:
    quantized = quantize_weight(weight, axis, qmax)
    shape = [1] * weight.ndim
    shape[axis] = -1
    return quantized.data * quantized.scale.reshape(shape)


@settings(deadline=None, max_examples=40)
@given(
    dims=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    axis=st.integers(0, 1),
    seed=st.integers(0, 99),
    magnitude=st.floats(1e-6, 1e6),
)
def test_no_worse_than_the_full_range(
    dims: list[int], axis: int, seed: int, magnitude: float
) -> None:
    drawn = np.random.default_rng(seed).standard_normal(dims) * magnitude
    weight = drawn.astype(np.float32)
    others = tuple(k for k in range(weight.ndim) if k != axis)
    bound = np.abs(weight).max(axis=others, keepdims=True)
    scale = np.where(bound > 0, bound / 127, 1)
    plain = np.rint(weight / scale) * scale
    error = np.square(_restored(weight, axis) - weight).sum()
    assert error <= np.square(plain - weight).sum() * 1.001


def test_channels_have_scales_of_their_own() -> None:
    weight = np.array([[1.0, -0.5], [100.0, 25.0]], np.float32)
    quantized = quantize_weight(weight, 0, 127)
    assert np.allclose(_restored(weight, 0), weight, rtol=0.02)
    assert quantized.scale[1] > 50 * quantized.scale[0]


@pytest.mark.parametrize("qmax", [127, 64])
def test_integers_stay_within_qmax(qmax: int) -> None:
    weight = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    assert np.abs(quantize_weight(weight, 0, qmax).data.astype(int)).max() <= qmax


def test_a_dead_channel_has_a_positive_scale() -> None:
    weight = np.array([[0, 0], [1, 2]], np.float32)
    quantized = quantize_weight(weight, 0, 127)
    assert np.all(quantized.scale > 0)
    assert not quantized.data[0].any()


def test_scales_respect_a_lower_bound() -> None:
    quantized = quantize_weight(np.ones((2, 3), np.float32), 0, 127, np.array([0.0, 1.0]))
    assert quantized.scale[0] < 0.01
    assert quantized.scale[1] == 1.0
