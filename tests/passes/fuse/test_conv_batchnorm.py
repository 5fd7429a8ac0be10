from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.io import to_bytes
from optcc.passkit.matcher import Match
from optcc.passkit.testing import bare_context
from passes.fuse.conv_batchnorm import FuseConvBatchNorm
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def _batchnorm(s: Sketch, x: ir.Value, channels: int, dtype: type = np.float32) -> ir.Value:
    spread = s.rng.random(channels).astype(dtype) + dtype(0.1)
    params = [s.weight(n, channels, dtype=dtype) for n in ("gamma", "beta", "mean")]
    return s.op("BatchNormalization", x, *params, s.constant("var", spread), name="bn", to="bn_out")


def _conv_bn(
    *,
    op_type: str = "Conv",
    groups: int = 1,
    per_group: tuple[int, int] = (2, 3),
    bias: bool = True,
    spatial: int = 2,
) -> Sketch:
    """x -> Conv or ConvTranspose (stride 2, odd pads) -> BatchNormalization -> y."""
    s = Sketch()
    inputs, outputs = per_group[0] * groups, per_group[1] * groups
    first, second = (outputs, per_group[0]) if op_type == "Conv" else (inputs, per_group[1])
    x = s.input("x", ["N", inputs, *[7, 6][:spatial]])
    w = s.weight("w", first, second, *[3, 2][:spatial])
    b = [s.weight("b", outputs)] if bias else []
    attributes = {"group": groups, "strides": [2, 1][:spatial], "pads": [1, 0, 0, 1][: 2 * spatial]}
    conv = s.op(op_type, x, w, *b, name="conv", to="conv_out", **attributes)
    s.output(_batchnorm(s, conv, outputs), None)
    return s


@settings(deadline=None, max_examples=25)
@given(
    op_type=st.sampled_from(["Conv", "ConvTranspose"]),
    groups=st.sampled_from([1, 2, 4]),
    per_group=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    bias=st.booleans(),
    spatial=st.sampled_from([1, 2]),
    batch=st.integers(1, 3),
)
def test_same_numbers(
    op_type: str,
    groups: int,
    per_group: tuple[int, int],
    bias: bool,
    spatial: int,
    batch: int,
) -> None:
    sketch = _conv_bn(
        op_type=op_type, groups=groups, per_group=per_group, bias=bias, spatial=spatial
    )
    model = sketch.model()
    keeps(FuseConvBatchNorm(), model, [feed(model, N=batch)])
    assert ops(model) == [op_type]


def test_names_stay_and_leftovers_go() -> None:
    model = _conv_bn().model()
    apply(FuseConvBatchNorm(), model)
    [conv] = model.graph
    assert (conv.name, conv.outputs[0].name) == ("conv", "bn_out")
    assert list(model.graph.initializers) == ["bn_out.weight", "bn_out.bias"]


def test_leaves_a_shared_weight_alone() -> None:
    s = _conv_bn()
    s.output(s.op("Neg", s.graph.initializers["w"]), None)
    result = apply(FuseConvBatchNorm(), s.model())
    assert reasons(result) == [("bn", "weight 'w' also feeds another node")]


def test_leaves_a_conv_that_is_an_output_alone() -> None:
    s = _conv_bn()
    s.output(s.graph[0].outputs[0], None)
    result = apply(FuseConvBatchNorm(), s.model())
    assert reasons(result) == [("bn", "value 'conv_out' is also a graph output")]


def test_leaves_a_conv_with_another_reader_alone() -> None:
    s = _conv_bn()
    s.output(s.op("Relu", s.graph[0].outputs[0], name="relu"), None)
    result = apply(FuseConvBatchNorm(), s.model())
    assert reasons(result) == [("bn", "value 'conv_out' is also read by 'relu'")]


def test_leaves_a_parameter_that_is_an_input_alone() -> None:
    s = _conv_bn()
    gamma = s.input("given", [6])
    s.graph.node("bn").replace_input_with(1, gamma)
    del s.graph.initializers["gamma"]
    s2 = s.model()
    assert ("bn", "'given' is not a constant") in reasons(apply(FuseConvBatchNorm(), s2))


def test_leaves_training_mode_alone() -> None:
    s = _conv_bn(per_group=(2, 3))
    s.graph.node("bn").attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    result = FuseConvBatchNorm().run(s.model(), bare_context())
    assert reasons(result) == [("bn", "it is in training mode")]


@pytest.mark.parametrize("variance", [-1.0, np.nan])
def test_leaves_an_impossible_variance_alone(variance: float) -> None:
    s = _conv_bn(per_group=(2, 3))
    s.graph.initializers["var"].const_value = ir.tensor(np.full(3, variance, np.float32))
    result = apply(FuseConvBatchNorm(), s.model())
    assert reasons(result) == [("bn", "'var' holds no valid variance")]


def test_tiny_variances_fold() -> None:
    s = _conv_bn(per_group=(2, 3))
    s.graph.initializers["var"].const_value = ir.tensor(np.array([0, 1e-12, 1], np.float32))
    model = s.model()
    keeps(FuseConvBatchNorm(), model, [feed(model, N=2)])


def _half(gamma: float) -> ir.Model:
    s = Sketch()
    x = s.input("x", [1, 2, 4, 4], ir.DataType.FLOAT16)
    conv = s.op("Conv", x, s.weight("w", 3, 2, 1, 1, dtype=np.float16))
    ones = [np.full(3, k, np.float16) for k in (gamma, 0, 0, 1e-3)]
    params = [s.constant(f"p{k}", a) for k, a in enumerate(ones)]
    bn = s.op("BatchNormalization", conv, *params, name="bn")
    s.output(bn, None, ir.DataType.FLOAT16)
    return s.model()


def test_half_precision_folds_wide() -> None:
    model = _half(0.5)
    apply(FuseConvBatchNorm(), model)
    assert ops(model) == ["Conv"]
    assert model.graph[0].inputs[1].dtype == ir.DataType.FLOAT16


def test_leaves_an_overflow_alone() -> None:
    result = apply(FuseConvBatchNorm(), _half(60000.0))
    assert reasons(result) == [("bn", "the folded weight does not fit float16")]


def test_untouched_model_keeps_its_bytes() -> None:
    s = Sketch()
    s.output(_batchnorm(s, s.op("Relu", s.input("x", [1, 3, 4, 4])), 3), None)
    model = s.model()
    before = to_bytes(model)
    assert not apply(FuseConvBatchNorm(), model).rewrites
    assert to_bytes(model) == before


class WrongBias(FuseConvBatchNorm):
    def folded(self, m: Match) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = super().folded(m)
        return weight, bias * np.float32(1.01)


class DroppedBias(FuseConvBatchNorm):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        y.producer().resize_inputs(2)
        return [y]


class WrongAxis(FuseConvBatchNorm):
    def folded(self, m: Match) -> tuple[np.ndarray, np.ndarray]:
        _, bias = super().folded(m)
        scale = m.array("gamma") / np.sqrt(m.array("var") + np.float32(1e-5))
        return m.array("w") * scale.reshape(1, -1, 1, 1), bias


@pytest.mark.parametrize("twin", [WrongBias, DroppedBias, WrongAxis])
def test_runner_catches_broken_twins(twin: type[FuseConvBatchNorm]) -> None:
    model = _conv_bn(per_group=(3, 3)).model()
    assert "'fuse.conv-batchnorm' broke its promise at 'bn'" in caught(twin(), model)
