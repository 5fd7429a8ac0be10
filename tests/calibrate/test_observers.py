"""Observers: promises that hold for any data, and the known best answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.calibrate.observation import Observation
from optcc.calibrate.observers import (
    EntropyObserver,
    MinMaxObserver,
    MseObserver,
    PercentileObserver,
    Scheme,
    clipping_error,
    kept_by,
    observer_for,
    tail_clips,
)
from optcc.calibrate.rounding import rounded_activation
from optcc.config.request import Calibrator
from optcc.errors import ConfigError

OBSERVERS = [MinMaxObserver(), PercentileObserver(), EntropyObserver(), MseObserver()]
every = pytest.mark.parametrize("observer", OBSERVERS, ids=lambda o: o.name)
both = pytest.mark.parametrize("scheme", list(Scheme), ids=lambda s: s.value)


def seen(*arrays: np.ndarray) -> Observation:
    observation = Observation()
    for array in arrays:
        observation.add(array)
    return observation


def data(kind: str, size: int = 20_000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size).astype(np.float32)
    if kind == "relu":
        return np.maximum(values, 0)
    if kind == "heavy":
        return values * np.abs(values) ** 2
    if kind == "shifted":
        return values + np.float32(2)
    return values


def squared_error(values: np.ndarray, interval, scheme: Scheme) -> float:
    rounded = rounded_activation(values, interval, scheme)
    return float(np.square(rounded - values, dtype=np.float64).sum())


@every
@both
@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=60),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_the_interval_holds_zero_and_nothing_unseen(observer, scheme, values, scale):
    array = np.array(values, np.float32) * np.float32(scale)
    interval = observer.choose(seen(array), scheme)
    assert min(array.min(), 0) <= interval.low <= 0 <= interval.high <= max(array.max(), 0)
    assert interval.method == observer.name


@every
@both
def test_chunks_and_order_do_not_matter(observer, scheme):
    values = data("heavy")
    parts = np.array_split(values[::-1], 7)
    assert observer.choose(seen(values), scheme) == observer.choose(seen(*parts), scheme)


@every
@both
@pytest.mark.parametrize("array", [np.zeros(5, np.float32), np.zeros((0, 3), np.float32)])
def test_a_dead_value_has_the_empty_interval(observer, scheme, array):
    interval = observer.choose(seen(array), scheme)
    assert (interval.low, interval.high) == (0.0, 0.0)


@every
@both
def test_one_value_far_out_is_covered_or_clipped_but_finite(observer, scheme):
    values = np.append(data("normal"), np.float32(1e30))
    interval = observer.choose(seen(values), scheme)
    assert np.isfinite([interval.low, interval.high]).all()
    assert interval.high > 0


@both
def test_minmax_keeps_the_extremes(scheme):
    values = data("shifted")
    interval = MinMaxObserver().choose(seen(values), scheme)
    assert (interval.low, interval.high) == (values.min(), values.max())


@settings(max_examples=25, deadline=None)
@given(percentile=st.floats(60, 100), seed=st.integers(0, 20))
def test_percentile_keeps_the_share_and_little_more(percentile, seed):
    values = data("heavy", 4000, seed)
    interval = PercentileObserver(percentile).choose(seen(values), Scheme.SIGNED)
    bound = max(-interval.low, interval.high)
    inside = np.count_nonzero(np.abs(values) <= bound)
    assert inside >= np.floor(percentile / 100 * values.size)
    width = seen(values).histogram.width
    within = np.count_nonzero(np.abs(values) <= bound - 2 * width)
    assert within <= np.ceil(percentile / 100 * values.size)


@pytest.mark.parametrize("percentile", [50.0, 100.1])
def test_percentile_out_of_bounds_is_refused(percentile):
    with pytest.raises(ConfigError, match=f"percentile is {percentile}"):
        PercentileObserver(percentile)


@both
@pytest.mark.parametrize("kind", ["normal", "relu", "heavy", "shifted"])
def test_mse_beats_the_other_observers_on_squared_error(scheme, kind):
    values = data(kind)
    observation = seen(values)
    errors = {
        o.name: squared_error(values, o.choose(observation, scheme), scheme) for o in OBSERVERS
    }
    assert errors["mse"] <= 1.03 * min(errors.values())


@both
def test_mse_is_near_the_best_clip_of_an_exhaustive_search(scheme):
    from optcc.passkit.qtypes import ActivationRange

    values = data("heavy")
    top = float(values.max())
    chosen = squared_error(values, MseObserver().choose(seen(values), scheme), scheme)
    tried = [
        ActivationRange(low=max(float(values.min()), -top * c), high=top * c, method="")
        for c in np.linspace(0.05, 1, 200)
    ]
    assert chosen <= 1.03 * min(squared_error(values, t, scheme) for t in tried)


@both
def test_entropy_clips_a_long_tail_and_keeps_a_uniform_value(scheme):
    uniform = np.random.default_rng(0).uniform(-1, 1, 50_000).astype(np.float32)
    kept = EntropyObserver().choose(seen(uniform), scheme)
    assert kept.high > 0.8
    tail = np.append(data("normal", 50_000), np.float32(60))
    cut = EntropyObserver().choose(seen(tail), scheme)
    assert 2 < cut.high < 30


@both
def test_zeros_do_not_move_the_entropy_clip(scheme):
    values = np.abs(data("heavy"))
    zeros = np.zeros(10 * values.size, np.float32)
    observer = EntropyObserver()
    assert observer.choose(seen(values), scheme) == observer.choose(seen(values, zeros), scheme)


def test_a_large_array_is_counted_at_a_stride_that_visits_every_channel():
    channels = np.tile(np.arange(1, 65, dtype=np.float32), 8192)
    observation = seen(channels)
    assert (observation.low, observation.high, observation.count) == (1, 64, channels.size)
    _, counts = observation.histogram.filled()
    assert counts.sum() < channels.size / 4
    assert counts[counts > 0].size == 64
    assert counts[counts > 0].max() <= 1.01 * counts[counts > 0].min()


def test_tail_clips_appear_only_for_a_long_tail():
    values = data("normal")
    assert tail_clips(seen(values)) == []
    assert tail_clips(seen(np.zeros(9, np.float32))) == []
    bounds = [
        o.choose(seen(values, np.float32([300])), Scheme.SIGNED).high
        for o in tail_clips(seen(values, np.float32([300])))
    ]
    assert bounds[:3] == [150, 75, 37.5]
    assert 1.5 < bounds[-1] < 4


def test_fixed_methods_have_an_observer():
    fixed = [m for m in Calibrator if m is not Calibrator.AUTO]
    assert [observer_for(m).name for m in fixed] == [m.value for m in fixed]


def test_non_finite_activations_are_counted_and_left_out():
    observation = seen(np.array([1.0, np.nan, -2.0, np.inf, -np.inf], np.float32))
    assert (observation.low, observation.high) == (-2.0, 1.0)
    assert (observation.count, observation.non_finite) == (2, 3)
    only = seen(np.array([np.nan], np.float32))
    assert (only.low, only.high, only.count, only.non_finite) == (0.0, 0.0, 0, 1)


def test_other_numeric_types_are_observed():
    observation = seen(np.array([3, -4], np.int64), np.array([True]), np.array([0.5], np.float16))
    assert (observation.low, observation.high, observation.count) == (-4.0, 3.0, 4)


@both
def test_clipping_error_is_that_of_the_values(scheme):
    from optcc.passkit.qtypes import ActivationRange

    values = data("heavy")
    interval = ActivationRange(low=-1.5, high=2.0, method="")
    low, high = kept_by(interval, scheme)
    assert (low, high) == ((-2.0, 2.0) if scheme is Scheme.SIGNED else (-1.5, 2.0))
    exact = np.square(values - np.clip(values, low, high)).mean()
    assert clipping_error(seen(values), interval, scheme) == pytest.approx(exact, rel=0.01)
    everything = MinMaxObserver().choose(seen(values), scheme)
    assert clipping_error(seen(values), everything, scheme) == 0
    assert clipping_error(seen(), interval, scheme) == 0
