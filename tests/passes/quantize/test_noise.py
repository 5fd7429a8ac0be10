from __future__ import annotations

import numpy as np
import pytest

from passes.quantize.noise import noise_shares, sqnr_db


@pytest.mark.parametrize("reference", [[], [0.0, 0.0], [2.0, 2.0], [1.0, np.nan]])
def test_a_reference_that_says_nothing_gives_no_level(reference: list[float]) -> None:
    assert sqnr_db(np.array(reference), np.zeros(len(reference))) is None


def test_levels_are_decibels() -> None:
    assert sqnr_db(np.array([10.0, 0.0]), np.array([9.0, 0.0])) == pytest.approx(20)
    assert sqnr_db(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == np.inf


def test_shares_are_taken_over_all_feeds_and_float_outputs_only() -> None:
    exact = [
        {"y": np.array([3.0, 0.0]), "k": np.array([1])},
        {"y": np.array([4.0]), "k": np.array([2])},
    ]
    got = [
        {"y": np.array([3.0, 1.0]), "k": np.array([9])},
        {"y": np.array([4.0]), "k": np.array([9])},
    ]
    assert noise_shares(exact, got) == {"y": pytest.approx(1 / 25)}
