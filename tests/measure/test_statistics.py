import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optcc.measure.statistics import drop_interval, mcnemar_p, median_interval


@pytest.mark.parametrize(("count", "first"), [(6, 1), (9, 2), (10, 2), (17, 5), (25, 8)])
def test_takes_the_order_statistics_of_the_sign_test(count, first):
    # Ranks of the 95 % interval of the median in printed tables.
    low, high = median_interval(range(1, count + 1))
    assert (low, high) == (first, count + 1 - first)


@pytest.mark.parametrize("count", [2, 4, 7, 30])
def test_covers_the_true_median_at_least_as_often_as_promised(count):
    rng = np.random.default_rng(count)
    trials = 2000
    rows = np.exp(rng.normal(0.0, 0.3, (trials, count)))
    hits = sum(low <= 1.0 <= high for low, high in map(median_interval, rows))
    assert hits / trials > 0.94


def test_outliers_do_not_move_it():
    calm = [1.5 + 0.001 * k for k in range(30)]
    disturbed = [*calm[:-4], 40.0, 50.0, 60.0, 70.0]
    assert median_interval(disturbed)[1] < 1.6


def test_two_values_give_a_wide_interval():
    low, high = median_interval([1.0, 1.1])
    assert low < 0.7
    assert high > 1.6


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 1.0], [-1.0, 1.0]])
def test_refuses_what_carries_no_interval(values):
    with pytest.raises(ValueError, match="two values above zero"):
        median_interval(values)


@pytest.mark.parametrize(
    ("b", "c", "p"), [(0, 0, 1.0), (5, 0, 0.0625), (10, 2, 158 / 4096), (4, 4, 1.0), (0, 1, 1.0)]
)
def test_mcnemar_by_hand(b, c, p):
    assert mcnemar_p(b, c) == pytest.approx(p, rel=1e-12)
    assert mcnemar_p(c, b) == mcnemar_p(b, c)


def test_mcnemar_of_many_samples_is_finite():
    assert 0 < mcnemar_p(600, 500) < 0.01
    assert mcnemar_p(100_000, 90_000) >= 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(100, 5000))
def test_drop_interval_holds_the_drop_and_mirrors(b, c, n):
    low, high = drop_interval(b, c, n)
    assert low <= 100 * (b - c) / n <= high
    assert drop_interval(c, b, n) == pytest.approx((-high, -low))


def test_drop_interval_shrinks_with_samples():
    widths = [np.diff(drop_interval(n // 100, n // 200, n))[0] for n in (200, 2000, 20000)]
    assert widths[0] > 2.5 * widths[1] > 6 * widths[2]
