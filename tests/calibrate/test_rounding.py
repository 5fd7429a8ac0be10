"""Rounding to a grid: the error bounds that follow from the step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.calibrate.observers import Scheme
from optcc.calibrate.rounding import rounded_activation, rounded_weight
from optcc.passkit.qtypes import ActivationRange, PerAxis, PerTensor


@settings(max_examples=60, deadline=None)
@given(
    low=st.floats(-1e3, 0, width=32),
    high=st.floats(2.0**-10, 1e3, width=32),
    scheme=st.sampled_from(list(Scheme)),
    seed=st.integers(0, 9),
)
def test_values_inside_move_by_half_a_step_at_most(low, high, scheme, seed):
    interval = ActivationRange(low=low, high=high, method="")
    values = np.random.default_rng(seed).uniform(low, high, 500).astype(np.float32)
    signed = scheme is Scheme.SIGNED
    step = max(-low, high) / 127 if signed else (high - low) / 255
    rounded = rounded_activation(values, interval, scheme)
    allowed = step * (0.5 if signed else 1.0) * 1.001
    assert np.abs(rounded - values).max() <= allowed
    assert rounded_activation(np.zeros(1, np.float32), interval, scheme) == 0
    again = rounded_activation(rounded, interval, scheme)
    assert np.allclose(again, rounded, atol=step * 1e-3)
    assert len(np.unique(rounded)) <= 256


def test_values_outside_are_clipped_and_the_input_is_left_alone():
    values = np.array([-9.0, 9.0], np.float32)
    interval = ActivationRange(low=0.0, high=2.55, method="")
    assert rounded_activation(values, interval, Scheme.UNSIGNED).tolist() == pytest.approx(
        [0, 2.55]
    )
    assert values.tolist() == [-9, 9]


def test_an_empty_interval_leaves_the_value():
    interval = ActivationRange(low=0.0, high=0.0, method="")
    assert rounded_activation(np.float32([3.0]), interval, Scheme.SIGNED).tolist() == [3.0]


@settings(max_examples=30, deadline=None)
@given(axis=st.integers(-3, 2), seed=st.integers(0, 9))
def test_weights_round_per_channel(axis, seed):
    weight = np.random.default_rng(seed).standard_normal((3, 4, 5)).astype(np.float32)
    rows = np.moveaxis(weight, axis, 0)
    rows *= np.geomspace(1e-3, 1e3, len(rows), dtype=np.float32)[:, None, None]
    rows[0] = 0
    error = np.moveaxis(rounded_weight(weight, PerAxis(axis)) - weight, axis, 0)
    step = np.abs(rows).max(axis=(1, 2)) / 127
    assert (np.abs(error).max(axis=(1, 2)) <= step * 0.501).all()
    whole = np.abs(rounded_weight(weight, PerTensor()) - weight).max()
    assert np.abs(weight).max() / 127 * 0.4 < whole <= np.abs(weight).max() / 127 * 0.501
