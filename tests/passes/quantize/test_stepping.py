from __future__ import annotations

import numpy as np
import pytest

from passes.lower.saturation import MOST_SUM, partners
from passes.quantize.second_order import curvature_of
from passes.quantize.stepping import Limits, error_of, refined, stepwise


def _case(inputs: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(inputs)
    data = rng.standard_normal((2, 300, inputs)) + 0.5
    exact = rng.uniform(-100, 100, (2, inputs, 7)).astype(np.float32)
    return exact, np.asarray(np.swapaxes(data, 1, 2) @ data / 300, np.float32)


@pytest.mark.parametrize("inputs", [1, 31, 32, 33, 70])
@pytest.mark.parametrize("paired", [False, True])
def test_the_sum_of_the_steps_is_the_error(inputs: int, paired: bool) -> None:
    exact, moment = _case(inputs)
    curvature = curvature_of(moment, 300)
    limits = Limits(127, partners([inputs]) if paired else [[]] * inputs, MOST_SUM)
    integers, error = stepwise(exact, curvature.factor, curvature.pivots, limits)
    whole = error_of(exact - integers, np.ones((2, 7), np.float32), curvature.moment)
    assert np.allclose(error, whole, rtol=1e-3)


@pytest.mark.parametrize("inputs", [5, 32, 70])
def test_moves_make_the_error_smaller_until_none_is_left(inputs: int) -> None:
    exact, moment = _case(inputs)
    limits, ones = Limits(127, [[]] * inputs, MOST_SUM), np.ones((2, 7), np.float32)
    start = np.rint(exact)
    once = refined(exact, start, moment, limits, 1)
    before, after = (error_of(exact - q, ones, moment) for q in (start, once))
    assert np.all(after <= before * (1 + 1e-4))
    assert after.sum() < before.sum() * 0.99
    settled = refined(exact, once, moment, limits, 200)
    for index in range(inputs):
        for step in (-1, 1):
            moved = settled.copy()
            moved[:, index] += step
            worse = error_of(exact - moved, ones, moment)
            assert np.all(worse >= error_of(exact - settled, ones, moment) * (1 - 1e-4))


def test_a_pair_that_is_too_large_gives_way_on_both_sides() -> None:
    exact = np.array([[[100.0], [90.0]]], np.float32)
    curvature = curvature_of(np.eye(2, dtype=np.float32)[None], 10**6)
    limits = Limits(127, partners([2]), MOST_SUM)
    integers, _ = stepwise(exact, curvature.factor, curvature.pivots, limits)
    assert integers.reshape(-1).tolist() == [69, 59]
