from __future__ import annotations

import numpy as np
import pytest

from optcc.verify.allowance import Allowance
from optcc.verify.numeric import Outcome

ONES = np.linspace(-1, 1, 9, dtype=np.float32)


def outcome(a: np.ndarray, b: np.ndarray, tolerance: float | None = None) -> Outcome:
    return Allowance(tolerance).judge(a, b).outcome


def test_rounding_is_the_default() -> None:
    assert outcome(ONES, ONES * np.float32(1 + 2**-21)) is Outcome.OK
    assert outcome(ONES, ONES * np.float32(1 + 2**-12)) is Outcome.BROKEN


def test_a_tolerance_is_a_share_of_the_largest_magnitude() -> None:
    assert outcome(ONES, ONES + np.float32(0.01), 0.011) is Outcome.OK
    assert outcome(ONES, ONES + np.float32(0.01), 0.009) is Outcome.BROKEN
    assert outcome(100 * ONES, 100 * ONES + np.float32(0.01), 0.009) is Outcome.OK


@pytest.mark.parametrize("tolerance", [None, 10.0])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_finite_in_one_only_is_a_difference_both_ways(tolerance, value: float) -> None:
    strange = ONES.copy()
    strange[3] = value
    for pair in ((ONES, strange), (strange, ONES), (strange, -strange + np.float32(0))):
        alike = pair[0] is strange and pair[1] is not ONES and np.isnan(value)
        expected = Outcome.OK if alike and tolerance else Outcome.BROKEN
        assert outcome(*pair, tolerance) is expected
    assert outcome(strange, strange, tolerance) is Outcome.OK


@pytest.mark.parametrize("tolerance", [None, 0.5])
def test_other_shapes_and_types_never_pass(tolerance) -> None:
    assert outcome(ONES, ONES[:4], tolerance) is Outcome.BROKEN
    assert outcome(ONES, ONES.astype(np.float64), tolerance) is Outcome.BROKEN


def test_whole_numbers_and_texts() -> None:
    numbers, texts = np.array([10, 20]), np.array(["a", "b"], object)
    assert outcome(numbers, numbers + 1) is Outcome.BROKEN
    assert outcome(numbers, numbers + 1, 0.06) is Outcome.OK
    assert outcome(numbers, numbers + 1, 0.04) is Outcome.BROKEN
    assert outcome(0 * numbers, numbers, 10.0) is Outcome.BROKEN
    assert outcome(texts, texts) is Outcome.OK
    assert outcome(texts, texts[::-1], 10.0) is Outcome.BROKEN


def test_ok_may_say_that_it_proves_little() -> None:
    none = np.full(4, np.nan, np.float32)
    verdict = Allowance().judge(none, none)
    assert verdict.outcome is Outcome.OK
    assert verdict.reason == "the reference is not finite anywhere"
