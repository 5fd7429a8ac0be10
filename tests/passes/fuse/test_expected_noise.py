from __future__ import annotations

import math

import numpy as np
import pytest

from passes.fuse.expected_noise import noise_share


def _rounded(array: np.ndarray, axis: int | None) -> np.ndarray:
    step = np.abs(array).max(axis=axis, keepdims=True) / 127
    return np.round(array / step) * step


@pytest.mark.parametrize("large_channel", [1.0, 20.0])
@pytest.mark.parametrize("large_row", [1.0, 20.0])
def test_agrees_with_rounding(large_channel: float, large_row: float) -> None:
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal((400, 64)), rng.standard_normal((64, 48))
    data[:, 3] *= large_channel
    weight[7] *= large_row
    exact = data @ weight
    error = _rounded(data, None) @ _rounded(weight, 0) - exact
    measured = float(np.square(error).sum() / np.square(exact).sum())
    assert abs(10 * math.log10(noise_share(data, weight) / measured)) < 1.0


def test_no_signal_no_noise() -> None:
    assert noise_share(np.zeros((2, 3)), np.ones((3, 4))) == 0.0
