from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.lower.saturation import MOST_SUM, keeps_pairs, partners
from passes.quantize.second_order import best_rounding, curvature_of, less_wrong
from passes.quantize.stepping import Limits


def _free(inputs: int) -> Limits:
    return Limits(127, [[]] * inputs, MOST_SUM)


def _moment(rng: np.random.Generator, groups: int, inputs: int, rows: int = 400) -> np.ndarray:
    mixed = rng.standard_normal((groups, rows, 3)) @ rng.standard_normal((groups, 3, inputs))
    data = np.maximum(mixed + 0.2 * rng.standard_normal((groups, rows, inputs)), 0)
    return np.asarray(np.swapaxes(data, 1, 2) @ data / rows, np.float32)


def _nearest(weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(np.rint(weight / scale[:, None]), -127, 127))


@settings(deadline=None, max_examples=40)
@given(
    groups=st.sampled_from([1, 3]),
    inputs=st.integers(1, 80),
    channels=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_no_channel_that_is_kept_is_worse_on_its_own_data(
    groups: int, inputs: int, channels: int, seed: int
) -> None:
    """In exact arithmetic; and together the channels gain before any is left out."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((groups, inputs, channels)).astype(np.float32)
    moment = _moment(rng, groups, inputs)
    scale = (np.abs(weight).max(axis=1) / 127).astype(np.float32)
    curvature = curvature_of(moment, 400)
    integers, chosen, _ = best_rounding(weight, scale[None], curvature, _free(inputs))
    assert np.array_equal(chosen, scale)
    old = _nearest(weight, scale)
    better = less_wrong(weight, (integers, scale), (old, scale), [moment])
    new, before = (_exact_error(weight - q * scale[:, None], moment) for q in (integers, old))
    kept = np.where(better, new, before)
    assert np.all(kept <= before * (1 + 1e-4))
    if inputs >= 20:
        assert kept.sum() < before.sum()
        assert better.mean() > 0.5


def _exact_error(left: np.ndarray, moment: np.ndarray) -> np.ndarray:
    exact = left.astype(np.float64)
    return np.einsum("gkc,gkl,glc->gc", exact, moment.astype(np.float64), exact)


def test_a_channel_must_gain_on_each_half() -> None:
    weight = np.full((1, 2, 1), 0.5, np.float32)
    one = np.ones((1, 1), np.float32)
    up_down = np.array([[[1.0], [0.0]]], np.float32)
    up_up = np.ones((1, 2, 1), np.float32)
    together = np.ones((1, 2, 2), np.float32)
    against = np.array([[[1, -1], [-1, 1]]], np.float32)
    for moments, wanted in (([together], True), ([against], False), ([together, against], False)):
        assert less_wrong(weight, (up_down, one), (up_up, one), moments).item() is wanted


def test_inputs_that_do_not_go_together_get_the_nearest_integers() -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((2, 40, 6)).astype(np.float32)
    moment = np.stack([np.diag(rng.uniform(0.1, 4, 40)) for _ in range(2)]).astype(np.float32)
    scale = (np.abs(weight).max(axis=1) / 127).astype(np.float32)
    integers, _, _ = best_rounding(weight, scale[None], curvature_of(moment, 999), _free(40))
    assert np.array_equal(integers, _nearest(weight, scale))


@settings(deadline=None, max_examples=60)
@given(
    dims=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    share=st.floats(0.3, 1.0),
    qmax=st.sampled_from([64, 127]),
    seed=st.integers(0, 999),
)
def test_no_pair_of_products_leaves_16_bits(
    dims: list[int], share: float, qmax: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = int(np.prod(dims))
    weight = (rng.standard_normal((1, inputs, 7)) + 1.5).astype(np.float32)
    curvature = curvature_of(_moment(rng, 1, inputs), 400)
    scales = (np.abs(weight).max(axis=1) / qmax).astype(np.float32) * np.array([[[1.0]], [[share]]])
    limits = Limits(qmax, partners(dims), MOST_SUM)
    integers, _, _ = best_rounding(weight, scales.astype(np.float32), curvature, limits)
    data = integers[0].T.reshape(7, *dims)
    assert np.abs(data).max() <= qmax
    assert keeps_pairs(data.astype(np.int8), 0)


def test_a_finer_scale_is_taken_when_the_clipped_weight_hardly_counts() -> None:
    rng = np.random.default_rng(0)
    weight = rng.uniform(-1, 1, (1, 256, 1)).astype(np.float32)
    weight[0, 5] = 3.0
    for size, wanted in ((1e-4, 1), (1.0, 0)):
        moment = np.eye(256, dtype=np.float32)[None].copy()
        moment[0, 5, 5] = size
        full = np.array([[3.0 / 127]], np.float32)
        scales = np.stack([full, full * np.float32(0.9)])
        _, scale, _ = best_rounding(weight, scales, curvature_of(moment, 10**6), _free(256))
        assert scale == (scales[wanted])


def test_channels_do_not_depend_on_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((2, 20, 9)).astype(np.float32)
    curvature = curvature_of(_moment(rng, 2, 20), 400)
    scales = (np.abs(weight).max(axis=1) / 127).astype(np.float32)[None]
    whole = best_rounding(weight, scales, curvature, _free(20))
    monkeypatch.setattr("passes.quantize.second_order._MOST_NUMBERS", 100)
    parts = best_rounding(weight, scales, curvature, _free(20))
    assert all(np.array_equal(a, b) for a, b in zip(whole[:2], parts[:2], strict=True))


def test_inputs_that_are_always_zero_are_no_trouble() -> None:
    moment = np.zeros((1, 8, 8), np.float32)
    weight = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8, 1)
    scale = np.array([[1 / 127]], np.float32)
    integers, _, _ = best_rounding(weight, scale[None], curvature_of(moment, 9), _free(8))
    assert np.array_equal(integers, _nearest(weight, scale))
