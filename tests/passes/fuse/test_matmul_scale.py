from __future__ import annotations

import numpy as np
import pytest

from optcc.passkit.testing import bare_context
from passes.fuse.matmul_scale import FuseMatMulScale
from tests.models.sketch import Sketch
from tests.passes.promise import apply, feed, keeps, ops, reasons


def _scaled(op_type: str, k: tuple[int, ...], x: list[int | str] | None) -> Sketch:
    s = Sketch()
    y = s.op("MatMul", s.input("x", x), s.weight("w", 3, 4), name="matmul")
    array = (s.rng.random(k) + 0.5).astype(np.float32)
    s.output(s.op(op_type, y, s.constant("k", array), name="scale"), None)
    return s


@pytest.mark.parametrize("op_type", ["Mul", "Div"])
@pytest.mark.parametrize("k", [(), (1,), (4,), (1, 4), (1, 1, 4)])
def test_same_numbers(op_type: str, k: tuple[int, ...]) -> None:
    model = _scaled(op_type, k, ["N", 2, 3]).model()
    keeps(FuseMatMulScale(), model, [feed(model, N=n) for n in (1, 3)])
    assert ops(model) == ["MatMul"]


@pytest.mark.parametrize("k", [(2, 1), (2, 4), (1, 1, 1, 4)])
def test_leaves_other_broadcasts_alone(k: tuple[int, ...]) -> None:
    result = apply(FuseMatMulScale(), _scaled("Mul", k, ["N", 2, 3]).model())
    assert reasons(result) == [("scale", "constant 'k' is not one number per output channel")]


def test_unknown_rank_allows_vectors_only() -> None:
    assert FuseMatMulScale().run(_scaled("Mul", (4,), None).model(), bare_context()).rewrites
    assert not FuseMatMulScale().run(_scaled("Mul", (1, 4), None).model(), bare_context()).rewrites


def test_leaves_a_shared_weight_alone() -> None:
    s = _scaled("Mul", (4,), [2, 3])
    s.output(s.op("Neg", s.graph.initializers["w"]), None)
    result = apply(FuseMatMulScale(), s.model())
    assert reasons(result) == [("scale", "weight 'w' also feeds another node")]


def test_leaves_weights_of_higher_rank_alone() -> None:
    s = Sketch()
    y = s.op("MatMul", s.input("x", [2, 5, 3]), s.weight("w", 2, 3, 4))
    s.output(s.op("Mul", y, s.weight("k", 4), name="scale"), None)
    result = apply(FuseMatMulScale(), s.model())
    assert reasons(result) == [("scale", "weight 'w' is not of rank 2")]
