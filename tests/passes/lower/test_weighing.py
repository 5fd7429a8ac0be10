from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.edit import constant_of
from optcc.passkit.qtypes import PerAxis, QuantUnit
from optcc.runtime.session import OptimizationLevel
from passes.lower.tensorrt import LowerTensorrt, spelled_signed
from passes.lower.weighing import bias_input, bias_row, quantized_weight, shift_bias
from passes.quantize.grid import Grid
from tests.models.layers import conv, samples, token_layer
from tests.models.sketch import Sketch
from tests.passes.lower.spelled import constant, dequantizer, node, prepared, run_at, spell


def _layer(bias: np.ndarray | None, weight_size: float = 1.0) -> tuple[ir.Node, QuantUnit]:
    s = Sketch()
    x = s.input("x", ["N", 8, 6, 6])
    weight = s.constant("w", np.asarray(s.rng.standard_normal((16, 8, 3, 3)) * weight_size, "f"))
    rest = [] if bias is None else [s.constant("b", bias.astype(np.float32))]
    s.output(s.op("Conv", x, weight, *rest, name="conv"), None)
    root = s.model().graph[0]
    unit = QuantUnit(
        nodes=("conv",), activations=("x",), output="conv_out", weight="w", granularity=PerAxis(0)
    )
    return root, unit


@settings(deadline=None, max_examples=30)
@given(
    power=st.floats(-9, 0),
    bias=st.floats(-1e6, 1e6, width=32),
    step=st.floats(1e-6, 10),
)
def test_the_bias_always_fits_into_int32(power: float, bias: float, step: float) -> None:
    root, unit = _layer(np.full(16, bias), 10**power)
    quantized = quantized_weight(root, unit, Grid(step, 0, signed=True), 127, safe_pairs=False)
    assert np.all(np.abs(bias) / (step * quantized.scale.astype(np.float64)) < 2**30)


def test_an_ordinary_bias_costs_no_precision() -> None:
    grid = Grid(0.05, 0, signed=True)
    with_bias = quantized_weight(*_layer(np.ones(16)), grid, 127, safe_pairs=False)
    without = quantized_weight(*_layer(None), grid, 127, safe_pairs=False)
    assert np.array_equal(with_bias.scale, without.scale)


def test_groups_of_a_transposed_convolution_share_scales_and_no_bias() -> None:
    s = Sketch()
    weight = s.constant("w", np.asarray(s.rng.standard_normal((6, 2, 2, 2)), "f"))
    bias = np.array([0, 0, 0, 1e6, 0, 0], np.float32)
    x = s.input("x", ["N", 6, 4, 4])
    s.output(s.op("ConvTranspose", x, weight, s.constant("b", bias), group=3, name="up"), None)
    root = s.model().graph[0]
    unit = QuantUnit(
        nodes=("up",), activations=("x",), output="up_out", weight="w", granularity=PerAxis(1)
    )
    row = bias_row(root, unit)
    assert row is not None
    assert row.tolist() == bias.tolist()
    scale = quantized_weight(root, unit, Grid(0.05, 0, signed=True), 127, safe_pairs=False).scale
    assert scale.shape == (2,)
    assert 1e6 / (0.05 * float(scale[1])) < 2**30


def test_a_tiny_weight_with_a_large_bias_survives_the_runtime() -> None:
    """ONNX Runtime rounds the float bias to int32 by itself when it loads the model."""
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    weight = np.asarray(s.rng.standard_normal((16, 16, 3, 3)) / 12, np.float32)
    weight[5] *= 1e-9
    bias = np.zeros(16, np.float32)
    bias[5] = 10.0
    first = s.op("Conv", x, s.constant("w", weight), s.constant("b", bias), name="a")
    s.output(s.op("Relu", conv(s, first, "c")), None)
    model = s.model()
    spelled, _ = spell(LowerTensorrt(), model)
    scale = constant(dequantizer(node(spelled, "a"), 1), 1)
    step = float(constant(dequantizer(node(spelled, "a"), 0), 1))
    assert 10.0 / (step * float(scale[5])) < 2**30
    feed = samples(model, 1)[0]
    off, full = (
        run_at(spelled, feed, level) for level in (OptimizationLevel.OFF, OptimizationLevel.ALL)
    )
    assert np.abs(off - full).max() < 0.05 * np.abs(off).max()


def _pairs(weight: np.ndarray) -> int:
    rows = weight.astype(int).reshape(len(weight), -1)
    rows = rows[:, : rows.shape[1] // 2 * 2].reshape(len(weight), -1, 2)
    return int(max(np.maximum(rows, 0).sum(axis=2).max(), -np.minimum(rows, 0).sum(axis=2).min()))


@pytest.mark.parametrize(("ops", "safe"), [((), True), (("Relu",), False)])
def test_only_what_a_cpu_runs_in_int8_is_kept_from_saturating(
    ops: tuple[str, ...], safe: bool
) -> None:
    s = Sketch()
    value = conv(s, s.input("x", [1, 16, 8, 8]), "lone")
    for op in ops:
        value = s.op(op, value)
    s.output(conv(s, value, "last"), None)
    spelled, _ = spell(LowerTensorrt(), s.model())
    limits = {n: _pairs(constant(dequantizer(node(spelled, n), 1), 0)) for n in ("lone", "last")}
    assert (limits["lone"] <= 128) is safe
    assert limits["last"] > 128, "nothing quantizes the last result, so it is no int8 kernel"


@pytest.mark.parametrize("dims", [(32,), (1, 1, 32), (1,)])
def test_a_shift_reaches_the_add_of_a_product(dims: tuple[int, ...]) -> None:
    model = token_layer(dims)
    nodes = list(model.graph)[:3]
    place = bias_input(nodes)
    assert place is not None
    old = constant_of(place[0].inputs[place[1]])
    assert shift_bias(model.graph, nodes, np.arange(32.0))
    new = constant_of(place[0].inputs[place[1]])
    assert old is not None
    assert new is not None
    assert np.allclose(new, old + np.arange(32.0))


def test_a_product_without_add_has_no_place_for_a_shift() -> None:
    model = token_layer()
    assert not shift_bias(model.graph, [list(model.graph)[-1]], np.ones(24))


def test_a_spelling_made_for_a_look_leaves_the_model_alone() -> None:
    model = token_layer()
    context = prepared(model)
    assert context.plan is not None
    assert context.ranges is not None
    spelled = spelled_signed(model, context.plan, context.ranges)
    same, _ = spell(LowerTensorrt(), model, context)
    assert [n.op_type for n in spelled.graph] == [n.op_type for n in same.graph]
    assert "QuantizeLinear" not in [n.op_type for n in model.graph]
