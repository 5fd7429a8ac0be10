from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.contract import Exactness
from optcc.verify.numeric import (
    Outcome,
    Verdict,
    compare,
    cosine,
    max_abs,
    ordinary,
    provable,
    sqnr_db,
    uninformative,
    worst,
)

BITWISE, ROUNDING, LOSSY = Exactness.BITWISE, Exactness.ROUNDING, Exactness.LOSSY


def normal(*shape: int, seed: int = 0, dtype: object = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def outcome(reference, got, exactness=ROUNDING, **more) -> Outcome:
    return compare(np.asarray(reference), np.asarray(got), exactness, **more).outcome


def test_equal_bits_pass_every_promise():
    x = normal(4, 5)
    for exactness in Exactness:
        assert outcome(x, x.copy(), exactness) is Outcome.OK


def test_one_bit_breaks_bitwise_only():
    x = normal(50)
    other = np.nextafter(x, np.float32(np.inf))
    assert outcome(x, other, BITWISE) is Outcome.BROKEN
    assert outcome(x, other, ROUNDING) is Outcome.OK


def test_the_sign_of_zero_is_a_bit():
    zeros = np.zeros(3, np.float32)
    assert outcome(zeros, -zeros, BITWISE) is Outcome.BROKEN


@pytest.mark.parametrize("exactness", list(Exactness))
def test_another_shape_or_type_breaks_every_promise(exactness):
    x = normal(2, 3)
    assert "shape" in compare(x, x.reshape(3, 2), exactness).reason
    assert "type" in compare(x, x.astype(np.float64), exactness).reason


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "float64", "float16"]),
    seed=st.integers(0, 1000),
    scale=st.floats(1e-2, 1e2),
)
def test_rounding_passes_and_one_percent_does_not(dtype, seed, scale):
    x = (normal(64, seed=seed, dtype=np.float64) * scale).astype(dtype)
    rounded = np.nextafter(x, np.array(np.inf, dtype))
    assert outcome(x, rounded) is Outcome.OK
    assert outcome(x, (x * np.array(1.02, dtype)).astype(dtype)) is Outcome.BROKEN


def test_the_narrowest_type_on_the_way_sets_the_tolerance():
    x = normal(64)
    through_half = x.astype(np.float16).astype(np.float32)
    assert outcome(x, through_half) is Outcome.BROKEN
    assert outcome(x, through_half, dtype=np.dtype(np.float16)) is Outcome.OK


def test_bfloat16_has_its_own_tolerance():
    x = normal(64).astype(ml_dtypes.bfloat16)
    near = (x.astype(np.float32) * np.float32(1.004)).astype(ml_dtypes.bfloat16)
    assert outcome(x, near) is Outcome.OK
    assert outcome(x, (x.astype(np.float32) * 1.1).astype(ml_dtypes.bfloat16)) is Outcome.BROKEN


def test_integers_are_compared_exactly_unless_lossy():
    x = np.arange(9)
    assert outcome(x, x + (x == 4)) is Outcome.BROKEN
    assert outcome(x, x + (x == 4), LOSSY) is Outcome.OK


def test_new_infinities_break_even_a_lossy_promise():
    x = normal(8)
    bad = x.copy()
    bad[3] = np.inf
    for exactness in (ROUNDING, LOSSY):
        assert outcome(x, bad, exactness) is Outcome.BROKEN


def test_a_reference_without_finite_values_proves_nothing():
    nothing = np.full(4, np.nan, np.float32)
    assert outcome(nothing, nothing) is Outcome.INCONCLUSIVE


def test_equal_infinities_do_not_hide_the_rest():
    masked = normal(8)
    masked[2] = -np.inf
    wrong = masked.copy()
    wrong[5] += 0.1
    assert outcome(masked, masked.copy()) is Outcome.OK
    assert outcome(masked, wrong) is Outcome.BROKEN


def test_the_largest_float_of_a_mask_does_not_set_the_scale():
    masked = normal(64)
    masked[::9] = np.finfo(np.float32).min
    wrong = masked.copy()
    wrong[1] += 0.01
    assert outcome(masked, masked.copy()) is Outcome.OK
    assert outcome(masked, wrong) is Outcome.BROKEN
    lost = masked.copy()
    lost[9] = -1e30
    assert outcome(masked, lost) is Outcome.BROKEN


def test_measured_noise_is_allowed_on_top():
    x = normal(64)
    moved = x + np.float32(1e-3)
    assert outcome(x, moved) is Outcome.BROKEN
    assert outcome(x, moved, noise=2e-3) is Outcome.OK


@pytest.mark.parametrize(
    ("references", "word"),
    [
        ([np.zeros(4, np.float32)] * 2, "zero"),
        ([np.full(4, 2.0, np.float32), np.full(6, 2.0, np.float32)], "constant"),
        ([np.full(4, np.nan, np.float32)], "finite"),
        ([np.array([], np.float32)], "finite"),
        ([np.arange(4.0)] * 2, "same for every probe"),
        ([np.r_[np.full(99, 6.0), 1.0], np.r_[np.full(99, 6.0), 2.0]], "saturated"),
        ([np.array([3.0])], "one number"),
    ],
)
def test_says_why_a_reference_proves_nothing(references, word):
    assert word in (uninformative(references) or "")


def test_different_finite_references_are_informative():
    assert uninformative([normal(9, seed=1), normal(9, seed=2)]) is None
    assert uninformative([normal(1, seed=1), normal(1, seed=2)]) is None
    assert uninformative([np.array([True, False]), np.array([False, True])]) is None


def test_ordinary_elements_are_the_bulk():
    assert ordinary(np.array([1.0, -2.0, 0.0, 1e9, np.inf])).tolist() == [1, 1, 1, 0, 0]
    assert ordinary(np.zeros(3)).all()


def test_worst_prefers_broken_then_inconclusive_then_the_largest_error():
    fine = Verdict(Outcome.OK, 1e-7, 1e-5)
    worse = Verdict(Outcome.OK, 1e-6, 1e-5)
    unknown = Verdict(Outcome.INCONCLUSIVE, reason="zero")
    broken = Verdict(Outcome.BROKEN, reason="no")
    assert worst([fine, unknown, broken]) is broken
    assert worst([fine, unknown]) is unknown
    assert worst([fine, worse]) is worse
    assert worst([]).outcome is Outcome.OK


@settings(max_examples=40, deadline=None)
@given(noise=st.floats(1e-4, 1e-1), seed=st.integers(0, 99))
def test_sqnr_follows_the_noise(noise, seed):
    x = normal(4000, seed=seed)
    got = x + noise * normal(4000, seed=seed + 1)
    assert sqnr_db(x, got) == pytest.approx(-20 * math.log10(noise), abs=1.0)


def test_measures_of_equal_and_opposite_arrays():
    x = normal(6)
    assert sqnr_db(x, x) is None
    assert sqnr_db(np.zeros(3), np.ones(3)) == -math.inf
    assert cosine(x, x) == pytest.approx(1.0)
    assert cosine(x, -x) == pytest.approx(-1.0)
    assert cosine(np.zeros(2), np.zeros(2)) == 1.0
    assert cosine(np.zeros(2), np.ones(2)) == 0.0
    assert max_abs(x, x + np.float32(0.5)) == pytest.approx(0.5, rel=1e-5)
    assert max_abs(np.zeros(0), np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    ("narrow", "proves"),
    [
        (None, Exactness.BITWISE),
        ("float64", Exactness.BITWISE),
        ("float32", Exactness.BITWISE),
        ("float16", Exactness.ROUNDING),
    ],
)
def test_bits_of_half_types_are_the_runtimes_choice(narrow, proves):
    dtype = None if narrow is None else np.dtype(narrow)
    assert provable(Exactness.BITWISE, dtype) is proves
    assert provable(Exactness.LOSSY, dtype) is Exactness.LOSSY
