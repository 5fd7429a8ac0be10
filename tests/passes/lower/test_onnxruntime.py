from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.errors import ConfigError
from optcc.graph.io import to_bytes
from optcc.passkit.qtypes import RangeTable
from optcc.passkit.testing import bare_context
from optcc.runtime.session import OptimizationLevel, Session
from passes.lower.onnxruntime import LowerOnnxruntime
from passes.quantize.noise import sqnr_db
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
from tests.passes.lower.spelled import (
    constant,
    dequantizer,
    level,
    node,
    optimized,
    prepared,
    spell,
)

_MODELS = {
    "residual": residual_block,
    "depthwise": lambda: single_conv("Relu", groups=16),
    "grouped": lambda: single_conv("HardSwish", groups=4),
    "perceptron": perceptron,
    "transposed": lambda: perceptron(trans_b=True),
    "scalar bias": lambda: perceptron(bias=1),
    "no bias": lambda: perceptron(bias=None),
    "tokens": token_layer,
    "attention": attention,
}


@settings(deadline=None, max_examples=18)
@given(
    name=st.sampled_from(sorted(_MODELS)),
    seed=st.integers(0, 5),
    cpu_class=st.sampled_from(["vnni", "avx2"]),
)
def test_close_to_the_float_model(name: str, seed: int, cpu_class: str) -> None:
    model = _MODELS[name]()
    feeds = samples(model, seed=seed)
    context = prepared(model, feeds)
    context.cpu_class = cpu_class
    spelled, result = spell(LowerOnnxruntime(), model, context)
    assert result.rejects == []
    assert level(model, spelled, feeds) > 25


@pytest.mark.parametrize("name", ["residual", "perceptron", "tokens", "grouped"])
def test_the_runtime_computes_what_the_graph_says(name: str) -> None:
    """No kernel of this processor saturates: optimized and plain runs agree."""
    model = _MODELS[name]()
    spelled, _ = spell(LowerOnnxruntime(), model)
    feed = samples(model, 1)[0]
    plain = Session(to_bytes(spelled)).run(feed)
    fast = Session(to_bytes(spelled), level=OptimizationLevel.ALL).run(feed)
    for output, reference in plain.items():
        found = sqnr_db(reference, fast[output])
        assert found is not None
        assert found > 35


def test_int8_kernels_form_and_no_relu_is_left(tmp_path: Path) -> None:
    spelled, _ = spell(LowerOnnxruntime(), residual_block())
    ops = optimized(spelled, tmp_path)
    assert (ops["QLinearConv"], ops["QLinearAdd"]) == (4, 1)
    assert (ops["Relu"], ops["Conv"], ops["FusedConv"], ops["Add"]) == (0, 0, 0, 0)
    assert (ops["QuantizeLinear"], ops["DequantizeLinear"]) == (1, 1)


@pytest.mark.parametrize("bias", [None, 1, 24])
def test_gemms_become_integer_gemms(bias: int | None, tmp_path: Path) -> None:
    spelled, _ = spell(LowerOnnxruntime(), perceptron(bias=bias))
    ops = optimized(spelled, tmp_path)
    assert ops["QGemm"] == 2
    assert ops["Relu"] == 0
    assert ops["Gemm"] + ops["FusedGemm"] == 0


@pytest.mark.parametrize("dims", [(32,), (1, 1, 32)])
def test_matmuls_become_integer_matmuls(dims: tuple[int, ...], tmp_path: Path) -> None:
    spelled, _ = spell(LowerOnnxruntime(), token_layer(dims))
    ops = optimized(spelled, tmp_path)
    assert ops["MatMulIntegerToFloat"] == 2
    assert ops["MatMul"] + ops["Gemm"] == 0


def test_a_matmul_of_fixed_shape_stays_an_integer_matmul(tmp_path: Path) -> None:
    s = Sketch()
    product = s.op("MatMul", s.input("x", [1, 6, 24]), s.weight("w", 24, 32), name="mm")
    s.output(s.op("Add", product, s.weight("b", 32), name="bias"), [1, 6, 32])
    spelled, _ = spell(LowerOnnxruntime(), s.model())
    assert optimized(spelled, tmp_path)["MatMulIntegerToFloat"] == 1


def test_pools_stay_integer(tmp_path: Path) -> None:
    s = Sketch()
    value = s.op("Relu", conv(s, s.input("x", ["N", 16, 8, 8]), "conv"), name="relu")
    value = s.op("MaxPool", value, name="max", kernel_shape=[2, 2], strides=[2, 2])
    value = conv(s, value, "next")
    value = s.op("Flatten", s.op("GlobalAveragePool", value, name="mean"), name="flat")
    s.output(s.op("Gemm", value, s.weight("w", 16, 16), name="fc"), ["N", 16])
    ops = optimized(spell(LowerOnnxruntime(), s.model())[0], tmp_path)
    assert ops["QLinearGlobalAveragePool"] == 1
    assert ops["NhwcMaxPool"] + ops["MaxPool"] == 1
    assert (ops["QuantizeLinear"], ops["DequantizeLinear"]) == (1, 0)


def test_activations_are_uint8_and_end_where_relu_does() -> None:
    spelled, _ = spell(LowerOnnxruntime(), residual_block())
    quantizers = {n.name: n for n in spelled.graph if n.op_type == "QuantizeLinear"}
    zeros = {name: constant(n, 2) for name, n in quantizers.items()}
    assert all(z.dtype == np.uint8 for z in zeros.values())
    relu = dequantizer(node(spelled, "head"), 0)
    assert int(constant(relu, 2)) == 0
    assert int(zeros["x.QuantizeLinear"]) > 100
    assert not [n for n in spelled.graph if n.op_type == "Relu"]


def test_biases_are_int32_on_the_grid_of_the_products() -> None:
    spelled, _ = spell(LowerOnnxruntime(), residual_block())
    head = node(spelled, "head")
    bias = dequantizer(head, 2)
    assert constant(bias, 0).dtype == np.int32
    data, weight = dequantizer(head, 0), dequantizer(head, 1)
    assert np.allclose(constant(bias, 1), constant(data, 1) * constant(weight, 1))


def test_a_bias_far_above_its_products_does_not_overflow() -> None:
    s = Sketch()
    weight = s.constant("w", np.full((16, 16, 1, 1), 1e-9, np.float32))
    bias = s.constant("b", np.full(16, 50.0, np.float32))
    x = s.input("x", [1, 16, 8, 8])
    tiny = s.op("Conv", x, weight, bias, name="tiny")
    s.output(s.op("Mul", tiny, x, name="mul"), [1, 16, 8, 8])
    model = s.model()
    feeds = samples(model)
    spelled, _ = spell(LowerOnnxruntime(), model, prepared(model, feeds))
    assert level(model, spelled, feeds) > 35


@pytest.mark.parametrize(("cpu_class", "most"), [("vnni", 127), ("avx2", 64)])
def test_avx2_keeps_weights_within_7_bits(cpu_class: str, most: int) -> None:
    model = residual_block()
    context = prepared(model)
    context.cpu_class = cpu_class
    spelled, _ = spell(LowerOnnxruntime(), model, context)
    data = constant(dequantizer(node(spelled, "head"), 1), 0).astype(int)
    assert 50 < np.abs(data).max() <= most


def test_a_clip_that_the_grid_cannot_do_stays() -> None:
    s = Sketch()
    bounds = [s.constant(n, np.array(v, np.float32)) for n, v in (("lo", 0.5), ("hi", 1.0))]
    value = conv(s, s.input("x", [1, 16, 8, 8]), "conv")
    s.output(s.op("Clip", value, *bounds, name="clip"), [1, 16, 8, 8])
    spelled, _ = spell(LowerOnnxruntime(), s.model())
    assert [n.name for n in spelled.graph if n.op_type == "Clip"] == ["clip"]


def test_a_relu6_disappears() -> None:
    s = Sketch()
    bounds = [s.constant(n, np.array(v, np.float32)) for n, v in (("lo", 0), ("hi", 0.5))]
    value = conv(s, s.input("x", [1, 16, 8, 8]), "conv")
    s.output(s.op("Clip", value, *bounds, name="clip"), [1, 16, 8, 8])
    model = s.model()
    feeds = samples(model)
    spelled, _ = spell(LowerOnnxruntime(), model, prepared(model, feeds))
    assert "Clip" not in [n.op_type for n in spelled.graph]
    assert level(model, spelled, feeds) > 30


def test_a_unit_without_a_range_is_left_out_with_its_reason() -> None:
    model = residual_block()
    context = prepared(model)
    assert context.ranges is not None
    known = {n: r for n, r in context.ranges.unsigned.items() if n != "second_out"}
    context.ranges = RangeTable(known, known)
    spelled, result = spell(LowerOnnxruntime(), model, context)
    assert [(r.node, r.reason) for r in result.rejects] == [
        ("second", "no calibrated range for 'second_out'")
    ]
    assert isinstance(spelled, ir.Model)


def test_two_runs_give_the_same_bytes() -> None:
    model = residual_block()
    context = prepared(model)
    first, _ = spell(LowerOnnxruntime(), model, context)
    second, _ = spell(LowerOnnxruntime(), model, context)
    assert to_bytes(first) == to_bytes(second)


def test_without_ranges_it_says_so() -> None:
    context = prepared(residual_block())
    context.ranges = None
    with pytest.raises(ConfigError, match=r"lower\.onnxruntime needs activation ranges"):
        LowerOnnxruntime().run(residual_block(), context)
    assert bare_context().plan is None


def test_a_pad_moves_integers(tmp_path: Path) -> None:
    s = Sketch()
    value = conv(s, s.input("x", ["N", 16, 8, 8]), "conv")
    pads = s.integers("pads", 0, 0, 1, 1, 0, 0, 1, 1)
    s.output(conv(s, s.op("Pad", value, pads, name="pad"), "next"), ["N", 16, 10, 10])
    model = s.model()
    feeds = samples(model)
    spelled, _ = spell(LowerOnnxruntime(), model, prepared(model, feeds))
    assert level(model, spelled, feeds) > 30
    ops = optimized(spelled, tmp_path)
    assert (ops["Pad"], ops["QLinearConv"]) == (1, 2)
    assert (ops["QuantizeLinear"], ops["DequantizeLinear"]) == (1, 1)


def test_zero_points_are_shared() -> None:
    spelled, _ = spell(LowerOnnxruntime(), residual_block())
    zeros = [n for n in spelled.graph.initializers if n.startswith("zero_point")]
    assert len(zeros) == len(
        {spelled.graph.initializers[n].const_value.numpy().tobytes() for n in zeros}
    )  # type: ignore[union-attr]
