from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from passes.fuse.conv_activation import FuseConvActivation
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

Maker = Callable[[Sketch, ir.Value], ir.Value]


def _pool(s: Sketch, x: ir.Value) -> ir.Value:
    return s.op("MaxPool", x, name="mover", kernel_shape=[2, 2], pads=[1, 0, 0, 1])


MOVERS: dict[str, Maker] = {
    "MaxPool": _pool,
    "Transpose": lambda s, x: s.op("Transpose", x, name="mover", perm=[0, 2, 3, 1]),
    "Flatten": lambda s, x: s.op("Flatten", x, name="mover"),
    "Reshape": lambda s, x: s.op("Reshape", x, s.integers("shape", 0, -1), name="mover"),
}


def _conv(s: Sketch) -> ir.Value:
    return s.op("Conv", s.input("x", ["N", 2, 5, 5]), s.weight("w", 3, 2, 3, 3), name="conv")


def _relu(s: Sketch, x: ir.Value) -> ir.Value:
    return s.op("Relu", x, name="act")


def _clip(s: Sketch, x: ir.Value) -> ir.Value:
    low, high = s.constant("low", np.float32(-1)), s.constant("high", np.float32(2))
    return s.op("Clip", x, low, high, name="act")


@pytest.mark.parametrize("act", [_relu, _clip])
@pytest.mark.parametrize("name", MOVERS)
def test_activation_goes_next_to_the_conv(name: str, act: Maker) -> None:
    s = Sketch()
    s.output(act(s, MOVERS[name](s, _conv(s))), None)
    model = s.model()
    keeps(FuseConvActivation(), model, [feed(model, N=n) for n in (1, 2)])
    assert [n.name for n in model.graph] == ["conv", "act", "mover"]


def test_sum_stays_in_the_unit() -> None:
    s = Sketch()
    x = s.input("x", ["N", 4, 6])
    product = s.op("MatMul", x, s.weight("w", 6, 8))
    total = s.op("Add", s.weight("b", 8), product)
    flat = s.op("Reshape", total, s.integers("shape", -1, 8))
    s.output(s.op("Relu", flat), None)
    model = s.model()
    keeps(FuseConvActivation(), model, [feed(model, N=2)])
    assert ops(model) == ["MatMul", "Add", "Relu", "Reshape"]


def test_average_pooling_does_not_commute() -> None:
    s = Sketch()
    s.output(_relu(s, s.op("AveragePool", _conv(s), kernel_shape=[2, 2])), None)
    assert not apply(FuseConvActivation(), s.model()).rewrites


def test_indices_that_are_read_keep_the_order() -> None:
    s = Sketch()
    s.op("MaxPool", _conv(s), name="pool", to=("pooled", "where"), kernel_shape=[2, 2])
    pooled, where = s.graph.node("pool").outputs
    s.output(_relu(s, pooled), None)
    s.output(where, None, ir.DataType.INT64)
    result = apply(FuseConvActivation(), s.model())
    assert reasons(result) == [("act", "value 'where' is also a graph output")]


def test_bounds_that_are_inputs_keep_the_order() -> None:
    s = Sketch()
    s.output(s.op("Clip", _pool(s, _conv(s)), s.input("low", []), name="act"), None)
    result = apply(FuseConvActivation(), s.model())
    assert reasons(result) == [("act", "its bounds are not constant, or leave nothing")]


class Lost(FuseConvActivation):
    def rewrite(self, m, graph):
        [y] = super().rewrite(m, graph)
        mover = y.producer()
        mover.replace_input_with(0, mover.inputs[0].producer().inputs[0])
        return [y]


def test_runner_catches_a_lost_activation() -> None:
    s = Sketch()
    s.output(_relu(s, _pool(s, _conv(s))), None)
    model = s.model()
    model.graph.inputs[0].shape = ir.Shape([1, 2, 5, 5])
    assert "at 'act'" in caught(Lost(), model)
