from __future__ import annotations

import numpy as np
import pytest

from passes.fuse import hard_sigmoid
from passes.fuse.hard_sigmoid import FuseHardSigmoid
from tests.models.hard_activations import SIGMOIDS, activation, number, shifted
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


@pytest.mark.parametrize("name", SIGMOIDS)
def test_every_spelling(name: str) -> None:
    model = activation(SIGMOIDS[name])
    keeps(FuseHardSigmoid(), model, [feed(model, seed=k) for k in (0, 1)])
    assert ops(model) == ["Neg", "HardSigmoid"]


@pytest.mark.parametrize(("shift", "divisor"), [(2.0, 6.0), (3.0, 5.0), (3.0, 6.01)])
def test_other_numbers_stay(shift: float, divisor: float) -> None:
    model = activation(lambda s, x: s.op("Div", shifted(s, x, shift), number(s, divisor)))
    assert not apply(FuseHardSigmoid(), model).rewrites


def test_leaves_constants_that_add_dims_alone() -> None:
    def make(s: Sketch, x):
        return s.op("Div", shifted(s, x), s.constant("six", np.full((1, 1, 1), 6, np.float32)))

    [(_, reason)] = reasons(apply(FuseHardSigmoid(), activation(make)))
    assert reason == "constant 'six' may add dims"


def test_runner_catches_a_wrong_slope(monkeypatch) -> None:
    monkeypatch.setattr(hard_sigmoid, "SIXTH", 0.2)
    assert "fuse.hard-sigmoid" in caught(FuseHardSigmoid(), activation(SIGMOIDS["div"]))
