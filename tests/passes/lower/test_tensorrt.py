from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.backends.contract import BuildStatus
from optcc.errors import ConfigError
from optcc.graph.io import to_bytes
from optcc.passkit.qtypes import RangeTable
from optcc.passkit.testing import bare_context
from passes.lower.tensorrt import LowerTensorrt
from tests.backends.build import build, needs_rtx, profile
from tests.models.layers import (
    attention,
    conv,
    perceptron,
    residual_block,
    samples,
    single_conv,
    token_layer,
)
from tests.models.sketch import Sketch
from tests.passes.lower.spelled import constant, dequantizer, level, node, prepared, spell

_MODELS = {
    "residual": residual_block,
    "depthwise": lambda: single_conv("Relu", groups=16),
    "grouped": lambda: single_conv("HardSwish", groups=4),
    "perceptron": perceptron,
    "transposed": lambda: perceptron(trans_b=True),
    "tokens": token_layer,
    "attention": attention,
}


@settings(deadline=None, max_examples=14)
@given(name=st.sampled_from(sorted(_MODELS)), seed=st.integers(0, 5))
def test_close_to_the_float_model(name: str, seed: int) -> None:
    model = _MODELS[name]()
    feeds = samples(model, seed=seed)
    spelled, result = spell(LowerTensorrt(), model, prepared(model, feeds))
    assert result.rejects == []
    assert level(model, spelled, feeds) > 25


def test_activations_are_symmetric_int8_per_tensor() -> None:
    spelled, _ = spell(LowerTensorrt(), residual_block())
    pairs = [n for n in spelled.graph if n.op_type == "QuantizeLinear"]
    assert len(pairs) == 4
    for pair in pairs:
        assert constant(pair, 1).shape == ()
        zero = constant(pair, 2)
        assert (zero.dtype, int(zero)) == (np.int8, 0)


@pytest.mark.parametrize(
    ("model", "name", "axis"),
    [
        (residual_block(), "head", 0),
        (perceptron(), "fc1", 1),
        (perceptron(trans_b=True), "fc1", 0),
        (token_layer(), "up", 1),
    ],
)
def test_weights_are_int8_constants_on_the_output_axis(
    model: ir.Model, name: str, axis: int
) -> None:
    spelled, _ = spell(LowerTensorrt(), model)
    dequantize = dequantizer(node(spelled, name), 1)
    assert dequantize.attributes.get_int("axis") == axis
    data = constant(dequantize, 0)
    assert data.dtype == np.int8
    assert constant(dequantize, 1).shape == (data.shape[axis],)
    assert not constant(dequantize, 2).any()


def test_a_transposed_convolution_scales_axis_1() -> None:
    s = Sketch()
    x = s.input("x", [1, 8, 6, 6])
    s.output(s.op("ConvTranspose", x, s.weight("w", 8, 4, 3, 3), name="up"), [1, 4, 8, 8])
    spelled, _ = spell(LowerTensorrt(), s.model())
    dequantize = dequantizer(node(spelled, "up"), 1)
    assert dequantize.attributes.get_int("axis") == 1
    assert constant(dequantize, 1).shape == (4,)


def test_biases_stay_float() -> None:
    spelled, _ = spell(LowerTensorrt(), residual_block())
    assert constant(node(spelled, "head"), 2).dtype == np.float32


def test_the_skip_branch_is_quantized_and_the_convolution_is_not() -> None:
    spelled, _ = spell(LowerTensorrt(), residual_block())
    add = node(spelled, "add")
    assert add.inputs[0] is node(spelled, "second").outputs[0]
    skip = dequantizer(add, 1)
    assert skip is dequantizer(node(spelled, "first"), 0), "one pair serves both readers"


def test_nothing_stands_inside_a_unit() -> None:
    spelled, _ = spell(LowerTensorrt(), residual_block())
    for unit in (("first", "first_relu"), ("second", "add"), ("add", "add_relu")):
        maker, reader = (node(spelled, name) for name in unit)
        assert maker.outputs[0] in reader.inputs


def test_concat_and_its_inputs_share_a_scale() -> None:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    double = s.op("Mul", x, s.constant("ten", np.array(10, np.float32)))
    joined = s.op("Concat", conv(s, x, "a"), conv(s, double, "b"), name="concat", axis=1)
    s.output(conv(s, joined, "c", channels=32), [1, 16, 8, 8])
    spelled, _ = spell(LowerTensorrt(), s.model())
    concat = node(spelled, "concat")
    scales = [float(constant(dequantizer(concat, k), 1)) for k in (0, 1)]
    scales.append(float(constant(dequantizer(node(spelled, "c"), 0), 1)))
    assert len(set(scales)) == 1


def test_a_shared_weight_is_stored_once() -> None:
    s = Sketch()
    w = s.weight("w", 16, 16, 3, 3)
    for name in ("a", "b"):
        x = s.input(f"x_{name}", [1, 16, 8, 8])
        s.output(s.op("Conv", x, w, name=name), [1, 16, 6, 6])
    spelled, _ = spell(LowerTensorrt(), s.model())
    assert dequantizer(node(spelled, "a"), 1) is dequantizer(node(spelled, "b"), 1)
    assert sum(v.const_value.dtype == ir.DataType.INT8 for v in _big(spelled)) == 1  # type: ignore[union-attr]
    assert "w" not in spelled.graph.initializers


def _big(model: ir.Model) -> list[ir.Value]:
    return [v for v in model.graph.initializers.values() if (v.const_value or 0).size > 99]  # type: ignore[union-attr]


def test_dead_channels_and_dead_activations_have_positive_scales() -> None:
    s = Sketch()
    weight = s.rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
    weight[3] = 0
    x = s.input("x", [1, 16, 8, 8])
    bias = s.constant("b", np.full(16, -1e6, np.float32))
    first = s.op("Conv", x, s.constant("w", weight), bias, pads=[1, 1, 1, 1])
    silent = s.op("Relu", first)
    s.output(s.op("Add", conv(s, silent, "c"), conv(s, x, "d"), name="sum"), [1, 16, 8, 8])
    spelled, _ = spell(LowerTensorrt(), s.model())
    for quantize in spelled.graph:
        if quantize.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale = constant(quantize, 1)
            assert np.all(scale > 0)
            assert np.all(np.isfinite(scale))


def test_a_unit_without_a_range_is_left_out_with_its_reason() -> None:
    model = residual_block()
    context = prepared(model)
    assert context.ranges is not None
    known = {n: r for n, r in context.ranges.signed.items() if n != "first_relu_out"}
    context.ranges = RangeTable(known, known)
    spelled, result = spell(LowerTensorrt(), model, context)
    assert [(r.node, r.reason) for r in result.rejects] == [
        ("second", "no calibrated range for 'first_relu_out'")
    ]
    assert node(spelled, "second").inputs[1].name == "second_w"  # type: ignore[union-attr]


def test_two_runs_give_the_same_bytes() -> None:
    model = residual_block()
    context = prepared(model)
    first, _ = spell(LowerTensorrt(), model, context)
    second, _ = spell(LowerTensorrt(), model, context)
    assert to_bytes(first) == to_bytes(second)


def test_rewrites_name_their_region() -> None:
    model = residual_block()
    _, result = spell(LowerTensorrt(), model)
    assert [r.node for r in result.rewrites] == ["stem", "first", "second", "head"]
    second = result.rewrites[2]
    assert [v.name for v in second.inputs] == ["first_relu_out", "stem_relu_out"]
    assert [v.name for v in second.outputs] == ["add_relu_out"]


def test_without_a_plan_it_says_so() -> None:
    with pytest.raises(ConfigError, match=r"lower\.tensorrt needs a quantization plan"):
        LowerTensorrt().run(residual_block(), bare_context())


@needs_rtx
@pytest.mark.parametrize("name", ["residual", "depthwise", "perceptron", "attention"])
def test_every_planned_layer_is_int8_in_a_real_engine(name: str, tmp_path: Path) -> None:
    model = _MODELS[name]()
    context = prepared(model)
    spelled, _ = spell(LowerTensorrt(), model, context)
    assert context.plan is not None
    wanted = {d.node: d.wanted for d in context.plan.decisions}
    (dims,) = [v.shape.dims for v in model.graph.inputs if v.shape is not None]
    shapes = profile(x=(2, *(d if isinstance(d, int) else 4 for d in dims[1:])))
    outcome = build(spelled, tmp_path, shapes=shapes, wanted=wanted, targets=("sm86",))
    assert outcome.status is BuildStatus.BUILT, outcome.reason
    got = {n.node: n.got for n in outcome.nodes}
    for unit in context.plan.units:
        assert got[unit.nodes[0]] == "int8", unit
    assert outcome.fallbacks() == ()
