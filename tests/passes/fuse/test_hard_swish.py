from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from passes.fuse.hard_sigmoid import FuseHardSigmoid
from passes.fuse.hard_swish import FuseHardSwish
from tests.models.hard_activations import SIGMOIDS, SWISHES, activation, number, shifted
from tests.models.sketch import Sketch
from tests.passes.promise import apply, feed, keeps, ops, reasons


@pytest.mark.parametrize("name", SWISHES)
def test_every_spelling(name: str) -> None:
    model = activation(SWISHES[name])
    keeps(FuseHardSwish(), model, [feed(model, seed=k) for k in (0, 1)])
    assert ops(model) == ["Neg", "HardSwish"]


@pytest.mark.parametrize("name", SIGMOIDS)
def test_product_with_a_decomposed_hard_sigmoid(name: str) -> None:
    model = activation(lambda s, x: s.op("Mul", x, SIGMOIDS[name](s, x)))
    apply(FuseHardSigmoid(), model)
    apply(FuseHardSwish(), model)
    assert ops(model) == ["Neg", "HardSwish"]


def test_leaves_another_slope_alone() -> None:
    model = activation(lambda s, x: s.op("Mul", x, s.op("HardSigmoid", x), name="mul"))
    result = apply(FuseHardSwish(), model)
    assert reasons(result) == [("mul", "its slope is 0.2 and its offset 0.5")]


def test_leaves_the_gate_of_another_value_alone() -> None:
    model = activation(lambda s, x: s.op("Mul", s.op("Abs", x), shifted(s, x)))
    assert not apply(FuseHardSwish(), model).rewrites


@pytest.mark.parametrize("one", [FuseHardSigmoid(), FuseHardSwish()], ids=lambda p: p.name)
def test_leaves_double_precision_alone(one) -> None:
    """The slope is a float32 attribute, and runtimes have no such kernel."""
    wide = [ir.DataType.DOUBLE.value, ir.DataType.FLOAT.value]

    def make(s: Sketch, x: ir.Value) -> ir.Value:
        x = s.op("Cast", x, to_=wide[0])
        three, zero, six = (number(s, k, np.float64) for k in (3, 0, 6))
        gate = s.op("Div", s.op("Clip", s.op("Add", x, three), zero, six), six)
        return s.op("Cast", s.op("Mul", x, gate), to_=wide[1])

    model = activation(make)
    result = apply(one, model)
    assert not result.rewrites
    assert all("not float32 or narrower" in reason for _, reason in reasons(result))


def test_leaves_old_opsets_alone() -> None:
    model = activation(SWISHES["op"], opset=13)
    [(_, reason)] = reasons(apply(FuseHardSwish(), model))
    assert reason == "opset 13 has no HardSwish"
