import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.measure.output_error import WORST_SQNR_DB, OutputError


def figures(original, got, pieces=1):
    error = OutputError()
    for a, b in zip(np.array_split(original, pieces), np.array_split(got, pieces), strict=True):
        error.add(a, b)
    return error.figures()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 7), st.floats(1e-4, 1.0))
def test_pieces_do_not_matter_and_the_formulas_hold(seed, pieces, size):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(8, 5)).astype(np.float32)
    b = (a + size * rng.normal(size=a.shape)).astype(np.float32)
    whole, parts = figures(a, b), figures(a, b, pieces)
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert whole.max_abs == parts.max_abs == np.abs(y - x).max()
    assert parts.sqnr_db == pytest.approx(whole.sqnr_db)
    assert whole.sqnr_db == pytest.approx(10 * math.log10((x**2).sum() / ((y - x) ** 2).sum()))
    assert whole.cosine == pytest.approx((x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y))


def test_nothing_differs():
    a = np.array([1.0, -2.0, 3.0], np.float32)
    result = figures(a, a)
    assert (result.max_abs, result.sqnr_db, result.cosine) == (0.0, None, 1.0)


def test_integers_are_subtracted_without_overflow():
    a, b = np.array([0, 255], np.uint8), np.array([255, 0], np.uint8)
    assert figures(a, b).max_abs == 255


def test_equal_infinities_and_nans_are_no_error():
    a = np.array([1.0, -np.inf, np.nan, 2.0])
    assert figures(a, a.copy()).sqnr_db is None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_finite_in_one_only_is_the_worst(bad):
    a = np.array([1.0, 2.0])
    result = figures(a, np.array([1.0, bad]))
    assert (result.sqnr_db, result.cosine, result.broken) == (WORST_SQNR_DB, 0.0, 1)
    assert figures(np.array([1.0, bad]), a).broken == 1
    assert figures(np.array([np.inf]), np.array([-np.inf])).broken == 1


def test_a_zero_original_with_another_artifact_is_the_worst():
    result = figures(np.zeros(3), np.ones(3))
    assert (result.sqnr_db, result.cosine) == (WORST_SQNR_DB, 0.0)


def test_shapes_that_differ_are_counted():
    error = OutputError()
    error.add(np.ones((3, 4)), np.ones((2, 4)))
    error.add(np.ones((3, 4)), np.ones((3, 4)))
    result = error.figures()
    assert (result.mismatched, result.elements, result.sqnr_db) == (1, 12, WORST_SQNR_DB)


def test_huge_values_do_not_raise():
    result = figures(np.array([1e300, 1.0]), np.array([-1e300, 1.0]))
    assert result.sqnr_db == WORST_SQNR_DB
    assert result.cosine == 0.0


def test_empty_outputs_are_exact():
    assert figures(np.empty((0, 4)), np.empty((0, 4))).sqnr_db is None
