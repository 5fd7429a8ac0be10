from __future__ import annotations

import numpy as np
import pytest

from optcc.passkit.matcher import Match
from passes.fuse.matmul_bias import FuseMatMulBias
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def _biased(op_type: str, k: tuple[int, ...], x: list[int | str]) -> Sketch:
    s = Sketch()
    y = s.op("MatMul", s.input("x", x), s.weight("w", 3, 4), name="matmul")
    s.output(s.op(op_type, y, s.weight("k", *k), name="bias"), None)
    return s


@pytest.mark.parametrize("op_type", ["Add", "Sub"])
@pytest.mark.parametrize("k", [(4,), (1, 4), (1,), (), (1, 1)])
def test_same_numbers(op_type: str, k: tuple[int, ...]) -> None:
    model = _biased(op_type, k, ["N", 3]).model()
    keeps(FuseMatMulBias(), model, [feed(model, N=n) for n in (2, 5)])
    assert ops(model) == ["Gemm"]
    assert model.graph[0].name == "matmul"


@pytest.mark.parametrize("k", [(5, 1), (5, 4), (1, 5, 4), (2, 5, 4), (2, 1, 1, 5, 4)])
def test_leaves_what_is_no_bias_alone(k: tuple[int, ...]) -> None:
    model = _biased("Add", k, [5, 3]).model()
    result = apply(FuseMatMulBias(), model)
    assert reasons(result) == [("bias", "constant 'k' is not one number per output channel")]


def test_leaves_other_ranks_as_they_are() -> None:
    model = _biased("Add", (4,), ["N", 2, 3]).model()
    result = apply(FuseMatMulBias(), model)
    assert (result.rewrites, result.rejects, ops(model)) == ([], [], ["MatMul", "Add"])


class Transposed(FuseMatMulBias):
    def bias(self, m: Match) -> np.ndarray:
        return super().bias(m)[::-1].copy()


def test_runner_catches_a_broken_twin() -> None:
    assert "at 'bias'" in caught(Transposed(), _biased("Add", (4,), ["N", 3]).model())
