from __future__ import annotations

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.matcher import Match
from passes.fuse.gemm_batchnorm import FuseGemmBatchNorm
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

COLUMNS = 5


def _bn(s: Sketch, x: ir.Value, channels: int = COLUMNS) -> None:
    params = [s.weight(n, channels) for n in ("gamma", "beta", "mean")]
    spread = s.constant("var", s.rng.random(channels).astype(np.float32) + np.float32(0.1))
    s.output(s.op("BatchNormalization", x, *params, spread, name="bn"), None)


def _gemm_bn(transpose: bool = False, bias: tuple[int, ...] | None = (COLUMNS,), **more) -> Sketch:
    s = Sketch()
    w = s.weight("w", *((COLUMNS, 4) if transpose else (4, COLUMNS)))
    c = [] if bias is None else [s.weight("c", *bias)]
    x = s.input("x", ["N", 4])
    _bn(s, s.op("Gemm", x, w, *c, name="gemm", transB=int(transpose), **more))
    return s


@settings(deadline=None, max_examples=20)
@given(
    transpose=st.booleans(),
    bias=st.sampled_from([None, (), (1,), (COLUMNS,), (1, COLUMNS)]),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([1.0, 2.0, 0.0]),
)
def test_same_numbers(
    transpose: bool, bias: tuple[int, ...] | None, alpha: float, beta: float
) -> None:
    model = _gemm_bn(transpose, bias, alpha=alpha, beta=beta).model()
    keeps(FuseGemmBatchNorm(), model, [feed(model, N=3)])
    assert ops(model) == ["Gemm"]


def test_matmul_of_rank_2_becomes_a_gemm() -> None:
    s = Sketch()
    _bn(s, s.op("MatMul", s.input("x", ["N", 4]), s.weight("w", 4, COLUMNS)))
    model = s.model()
    keeps(FuseGemmBatchNorm(), model, [feed(model, N=3)])
    assert ops(model) == ["Gemm"]


def test_matmul_of_rank_3_has_its_channels_elsewhere() -> None:
    s = Sketch()
    _bn(s, s.op("MatMul", s.input("x", ["N", 5, 4]), s.weight("w", 4, COLUMNS)))
    result = apply(FuseGemmBatchNorm(), s.model())
    assert reasons(result) == [("bn", "'x' is not of rank 2")]


def test_leaves_a_bias_by_row_alone() -> None:
    s = Sketch()
    x, w, c = s.input("x", [3, 4]), s.weight("w", 4, COLUMNS), s.weight("c", 3, 1)
    _bn(s, s.op("Gemm", x, w, c))
    result = apply(FuseGemmBatchNorm(), s.model())
    assert reasons(result) == [("bn", "the bias of the Gemm differs from row to row")]


def test_leaves_a_shared_weight_alone() -> None:
    s = _gemm_bn()
    s.output(s.op("Neg", s.graph.initializers["w"]), None)
    result = apply(FuseGemmBatchNorm(), s.model())
    assert reasons(result) == [("bn", "weight 'w' also feeds another node")]


class ForgottenBeta(FuseGemmBatchNorm):
    def folded(self, m: Match) -> tuple[np.ndarray, np.ndarray]:
        weight, bias = super().folded(m)
        return weight, bias + m.array("c") * np.float32(0.05)


def test_runner_catches_a_broken_twin() -> None:
    assert "at 'bn'" in caught(ForgottenBeta(), _gemm_bn().model())
