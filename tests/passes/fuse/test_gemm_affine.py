from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.fuse.gemm_affine import FuseGemmAffine
from tests.models.sketch import Sketch
from tests.passes.promise import apply, feed, keeps, ops, reasons


def _gemm(
    op_type: str,
    k: tuple[int, ...],
    bias: tuple[int, ...] | None = (4,),
    rows: int | str = "N",
    **more: object,
) -> Sketch:
    s = Sketch()
    w = s.weight("w", *((4, 3) if more.get("transB") else (3, 4)))
    c = [] if bias is None else [s.weight("c", *bias)]
    y = s.op("Gemm", s.input("x", [rows, 3]), w, *c, name="gemm", **more)
    array = (s.rng.random(k) + 0.5).astype(np.float32)
    s.output(s.op(op_type, y, s.constant("k", array), name="affine"), None)
    return s


@settings(deadline=None, max_examples=25)
@given(
    op_type=st.sampled_from(["Add", "Sub", "Mul", "Div"]),
    k=st.sampled_from([(), (1,), (4,), (1, 4), (1, 1)]),
    bias=st.sampled_from([None, (4,), (1, 4), ()]),
    alpha=st.sampled_from([1.0, 0.25]),
    beta=st.sampled_from([1.0, 3.0]),
    transpose=st.booleans(),
)
def test_same_numbers(
    op_type: str,
    k: tuple[int, ...],
    bias: tuple[int, ...] | None,
    alpha: float,
    beta: float,
    transpose: bool,
) -> None:
    model = _gemm(op_type, k, bias, alpha=alpha, beta=beta, transB=int(transpose)).model()
    keeps(FuseGemmAffine(), model, [feed(model, N=n) for n in (2, 3)])
    assert ops(model) == ["Gemm"]


@pytest.mark.parametrize("k", [(3, 1), (3, 4), (1, 3, 4), (2, 1, 1)])
def test_leaves_other_broadcasts_alone(k: tuple[int, ...]) -> None:
    result = apply(FuseGemmAffine(), _gemm("Add", k, rows=3).model())
    assert reasons(result) == [("affine", "constant 'k' is not one number per output channel")]


def test_leaves_a_bias_by_row_alone() -> None:
    result = apply(FuseGemmAffine(), _gemm("Add", (4,), bias=(3, 1), rows=3).model())
    assert reasons(result) == [("affine", "the bias of the Gemm differs from row to row")]


def test_leaves_a_shared_weight_alone() -> None:
    s = _gemm("Mul", (4,))
    s.output(s.op("Neg", s.graph.initializers["w"]), None)
    result = apply(FuseGemmAffine(), s.model())
    assert reasons(result) == [("affine", "weight 'w' also feeds another node")]
