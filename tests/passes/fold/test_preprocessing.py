from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.matcher import Match
from passes.fold.preprocessing import FoldPreprocessing
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

CHANNELS = 4


def k_of(*dims: int) -> np.ndarray:
    return (np.random.default_rng(1).random(dims) + 0.5).astype(np.float32)


def conv(op_type: str, k: np.ndarray, *, bias: bool = True, **attributes: object) -> Sketch:
    """`op_type` with k, then Conv of [N, 4, 6, 5] to 6 channels."""
    s = Sketch()
    group = int(str(attributes.get("group", 1)))
    x = s.op(op_type, s.input("x", ["N", CHANNELS, 6, 5]), s.constant("k", k), name="affine")
    w = s.weight("w", 6, CHANNELS // group, 3, 3)
    b = [s.weight("b", 6)] if bias else []
    s.output(s.op("Conv", x, w, *b, name="conv", **attributes), None)
    return s


def product(kind: str, op_type: str, k: np.ndarray, *, bias: bool = True, **attributes) -> Sketch:
    """`op_type` with k, then a product of [N, 4] with a matrix of 4 rows."""
    s = Sketch()
    x = s.op(op_type, s.input("x", ["N", CHANNELS]), s.constant("k", k), name="affine")
    dims = (3, CHANNELS) if attributes.get("transB") else (CHANNELS, 3)
    b = [s.weight("b", 3)] if bias and kind == "Gemm" else []
    s.output(s.op(kind, x, s.weight("w", *dims), *b, name="product", **attributes), None)
    return s


@settings(deadline=None, max_examples=30)
@given(
    op_type=st.sampled_from(["Add", "Sub", "Mul", "Div"]),
    dims=st.sampled_from([(), (1,), (4, 1, 1), (1, 4, 1, 1), (1, 1)]),
    group=st.sampled_from([1, 2]),
    bias=st.booleans(),
    more=st.sampled_from([{}, {"strides": [2, 1]}, {"dilations": [2, 1]}, {"auto_pad": "VALID"}]),
)
def test_same_numbers_of_a_conv(op_type, dims, group, bias, more) -> None:
    model = conv(op_type, k_of(*dims), bias=bias, group=group, **more).model()
    keeps(FoldPreprocessing(), model, [feed(model, N=n) for n in (1, 3)])
    assert ops(model) == ["Conv"]


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("dims", [(), (4,), (1, 4)])
@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("MatMul", {}),
        ("Gemm", {}),
        ("Gemm", {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ],
)
def test_same_numbers_of_a_product(op_type, dims, kind, attributes) -> None:
    model = product(kind, op_type, k_of(*dims), **attributes).model()
    keeps(FoldPreprocessing(), model, [feed(model, N=n) for n in (1, 3)])
    added = ["Add"] if kind == "MatMul" and op_type in ("Add", "Sub") else []
    assert ops(model) == [kind, *added]


def test_a_whole_normalization_goes_round_by_round() -> None:
    s = Sketch()
    x = s.op("Cast", s.input("x", [1, 3, 6, 6], ir.DataType.UINT8), to_=ir.DataType.FLOAT)
    mean = s.constant("mean", np.array([123.7, 116.3, 103.5], np.float32).reshape(3, 1, 1))
    std = s.constant("std", np.array([58.4, 57.1, 57.4], np.float32).reshape(3, 1, 1))
    x = s.op("Div", s.op("Sub", x, mean), std)
    s.output(s.op("Conv", x, s.weight("w", 8, 3, 3, 3)), None)
    model = s.model()
    pixels = {"x": np.random.default_rng(0).integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)}
    apply(FoldPreprocessing(), model)
    keeps(FoldPreprocessing(), model, [pixels])
    assert ops(model) == ["Cast", "Conv"]


@pytest.mark.parametrize("attributes", [{"pads": [0, 1, 0, 0]}, {"auto_pad": "SAME_UPPER"}])
def test_a_shift_in_front_of_padding_stays(attributes) -> None:
    result = apply(FoldPreprocessing(), conv("Sub", k_of(4, 1, 1), **attributes).model())
    wanted = "the padding zeros stand for numbers after the shift"
    assert reasons(result) == [("conv", wanted)]


def test_a_scale_in_front_of_padding_folds() -> None:
    model = conv("Mul", k_of(4, 1, 1), pads=[1, 1, 1, 1]).model()
    keeps(FoldPreprocessing(), model, [feed(model, N=2)])


@pytest.mark.parametrize("dims", [(5,), (6, 1), (4, 6, 5), (4, 1, 1, 1)])
def test_what_differs_within_a_channel_stays(dims) -> None:
    k = k_of(*dims)
    s = Sketch()
    x = s.op("Mul", s.input("x", [4, 4, 6, 5]), s.constant("k", k), name="affine")
    s.output(s.op("Conv", x, s.weight("w", 6, 4, 3, 3), name="conv"), None)
    result = apply(FoldPreprocessing(), s.model())
    assert reasons(result) == [("conv", "constant 'k' is not one number per output channel")]


@pytest.mark.parametrize(
    ("op_type", "k", "words"),
    [
        ("Div", [1, 1, 1, 100], "its channels differ 100 times in scale"),
        ("Mul", [1, 1, 0, 1], "a channel is multiplied by 0"),
        ("Sub", [0, 0, 1e6, 0], "it shifts by 1e+06"),
        ("Div", [1, 0, 1, 1], "holds a zero to divide by"),
    ],
)
def test_raw_features_keep_their_standardization(op_type, k, words) -> None:
    array = np.array(k, np.float32)
    result = apply(FoldPreprocessing(), product("Gemm", op_type, array).model())
    (found,) = reasons(result)
    assert words in found[1]


def test_shared_things_stay() -> None:
    s = conv("Mul", k_of(4, 1, 1))
    s.output(s.op("Neg", s.graph.initializers["w"]), None)
    assert reasons(apply(FoldPreprocessing(), s.model())) == [
        ("conv", "weight 'w' also feeds another node")
    ]
    s = conv("Mul", k_of(4, 1, 1))
    s.output(s.op("Neg", s.graph[0].outputs[0]), None)
    ((_, reason),) = reasons(apply(FoldPreprocessing(), s.model()))
    assert "is also read by" in reason


def test_a_transposed_gemm_stays() -> None:
    s = Sketch()
    x = s.op("Mul", s.input("x", [4, 4]), s.constant("k", k_of(4)))
    s.output(s.op("Gemm", x, s.weight("w", 4, 3), name="gemm", transA=1), None)
    assert reasons(apply(FoldPreprocessing(), s.model())) == [
        ("gemm", "the Gemm reads its data transposed")
    ]


def test_constant_minus_x_stays() -> None:
    s = Sketch()
    x = s.op("Sub", s.constant("k", k_of(4, 1, 1)), s.input("x", [1, 4, 6, 5]))
    s.output(s.op("Conv", x, s.weight("w", 6, 4, 3, 3)), None)
    assert not apply(FoldPreprocessing(), s.model()).rewrites


class PaddingIgnored(FoldPreprocessing):
    """The classic fault: zeros of the padding are taken for zeros before the shift."""

    def folded(self, m: Match):
        held = m.root.attributes.pop("pads")
        try:
            return super().folded(m)
        finally:
            m.root.attributes["pads"] = held


def test_runner_catches_a_broken_twin() -> None:
    model = conv("Sub", k_of(4, 1, 1), pads=[1, 1, 1, 1]).model()
    assert "at 'conv'" in caught(PaddingIgnored(), model)
