from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.matcher import Match
from passes.fuse.conv_affine import FuseConvAffine
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

CHANNELS = 4


def _conv(
    op_type: str, k: np.ndarray, *, conv: str = "Conv", bias: bool = True, width: int = CHANNELS
) -> Sketch:
    """Conv of [N, 2, 5, width] to 4 channels in two groups, then `op_type` with k."""
    s = Sketch()
    x = s.input("x", ["N", 2, 5, width])
    w = s.weight("w", *((CHANNELS, 1, 1, 1) if conv == "Conv" else (2, 2, 1, 1)))
    b = [s.weight("b", CHANNELS)] if bias else []
    y = s.op(conv, x, w, *b, name="conv", to="conv_out", group=2)
    s.output(s.op(op_type, y, s.constant("k", k), name="affine"), None)
    return s


def _k(*dims: int) -> np.ndarray:
    return (np.random.default_rng(1).random(dims) + 0.5).astype(np.float32)


@settings(deadline=None, max_examples=25)
@given(
    op_type=st.sampled_from(["Add", "Sub", "Mul", "Div"]),
    dims=st.sampled_from([(), (1,), (4, 1, 1), (1, 4, 1, 1), (1, 1)]),
    conv=st.sampled_from(["Conv", "ConvTranspose"]),
    bias=st.booleans(),
)
def test_same_numbers(op_type: str, dims: tuple[int, ...], conv: str, bias: bool) -> None:
    model = _conv(op_type, _k(*dims), conv=conv, bias=bias).model()
    keeps(FuseConvAffine(), model, [feed(model, N=n) for n in (1, 3)])
    assert ops(model) == [conv]


@pytest.mark.parametrize("dims", [(4,), (5, 1), (5, 4), (1, 1, 1, 1, 1), (4, 1, 1, 1), (4, 5, 1)])
def test_leaves_other_broadcasts_alone(dims: tuple[int, ...]) -> None:
    result = apply(FuseConvAffine(), _conv("Add", _k(*dims)).model())
    assert reasons(result) == [("affine", "constant 'k' is not one number per output channel")]


def test_leaves_a_shared_weight_alone_but_for_a_bias() -> None:
    for op_type, fuses in (("Mul", False), ("Add", True)):
        s = _conv(op_type, _k(4, 1, 1))
        s.output(s.op("Neg", s.graph.initializers["w"]), None)
        result = apply(FuseConvAffine(), s.model())
        assert bool(result.rewrites) is fuses
        assert fuses or reasons(result) == [("affine", "weight 'w' also feeds another node")]


def test_leaves_a_zero_divisor_alone() -> None:
    k = np.array([1, 0, 1, 1], np.float32).reshape(4, 1, 1)
    result = apply(FuseConvAffine(), _conv("Div", k).model())
    assert reasons(result) == [("affine", "constant 'k' holds a zero to divide by")]


def test_leaves_constant_minus_conv_alone() -> None:
    s = Sketch()
    conv = s.op("Conv", s.input("x", [1, 2, 3, 3]), s.weight("w", 4, 2, 1, 1))
    s.output(s.op("Sub", s.weight("k", 4, 1, 1), conv), None)
    model = s.model()
    assert not apply(FuseConvAffine(), model).rewrites
    assert ops(model) == ["Conv", "Sub"]


def test_leaves_a_residual_add_alone() -> None:
    s = Sketch()
    x = s.input("x", [1, 4, 3, 3])
    s.output(s.op("Add", s.op("Conv", x, s.weight("w", 4, 4, 1, 1)), x), None)
    assert not apply(FuseConvAffine(), s.model()).rewrites


class WidthAsChannels(FuseConvAffine):
    """The classic fault: a vector is taken for a bias, whatever it broadcasts over."""

    def check(self, m: Match) -> None:
        return None

    def rewrite(self, m: Match, graph: ir.Graph):
        k = m.array("k").reshape(4, 1, 1)
        m.value("k").const_value = ir.tensor(k)
        m.value("k").shape = ir.Shape(k.shape)
        return super().rewrite(m, graph)


def test_runner_catches_a_broken_twin() -> None:
    assert "at 'affine'" in caught(WidthAsChannels(), _conv("Add", _k(4)).model())
