"""The streaming histogram equals the one over all data at once, in every order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.calibrate.histogram import Histogram

number = st.floats(-(2.0**60), 2.0**60, width=32).filter(lambda x: x == 0 or abs(x) > 1e-20)
chunks = st.lists(st.lists(number, min_size=1, max_size=20), min_size=1, max_size=6)


def of(*arrays: np.ndarray) -> Histogram:
    histogram = Histogram()
    for values in arrays:
        histogram.add(values, float(np.abs(values).max()))
    return histogram


@settings(max_examples=100, deadline=None)
@given(parts=chunks, seed=st.integers(0, 5))
def test_order_and_chunking_do_not_matter(parts, seed):
    arrays = [np.array(p, np.float32) for p in parts]
    whole = np.concatenate(arrays)
    shuffled = np.random.default_rng(seed).permutation(whole)
    one, other, single = of(*arrays), of(shuffled), of(*shuffled.reshape(-1, 1))
    assert one.exponent == other.exponent == single.exponent
    assert np.array_equal(one.counts, other.counts)
    assert np.array_equal(one.counts, single.counts)


@settings(max_examples=100, deadline=None)
@given(parts=chunks)
def test_every_value_lies_in_its_bin(parts):
    whole = np.concatenate([np.array(p, np.float32) for p in parts])
    centers, counts = of(whole).filled()
    assert counts.sum() == whole.size
    width = of(whole).width
    expected = np.sort((np.floor(whole.astype(np.float64) / width) + 0.5) * width)
    assert np.array_equal(np.repeat(centers, counts), expected)


def test_memory_does_not_grow_with_the_data():
    histogram = Histogram()
    for scale in (1e-6, 1.0, 1e6):
        for _ in range(3):
            histogram.add(np.full(100_000, scale, np.float32), scale)
    assert histogram.counts.nbytes == 8192 * 8
    assert histogram.counts.sum() == 900_000


def test_extreme_magnitudes_and_nothing():
    tiny, huge = np.float32(1e-44), np.finfo(np.float32).max
    histogram = of(np.array([tiny], np.float32), np.array([huge, -huge], np.float32))
    assert histogram.counts.sum() == 3
    assert Histogram().filled()[0].size == 0


def test_zeros_first_do_not_coarsen_what_follows():
    values = np.linspace(1e-7, 2e-7, 50, dtype=np.float32)
    histogram = of(np.zeros(9, np.float32), values)
    assert np.count_nonzero(histogram.counts) > 40
