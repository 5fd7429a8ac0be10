from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from passes.fuse.clip_spelling import FuseClipSpelling
from tests.models.sketch import Sketch
from tests.passes.promise import apply, feed, keeps, ops, reasons


def _bounded(op_type: str, number: float, *dims: int, swap: bool = False) -> ir.Model:
    s = Sketch()
    x, k = s.input("x", [4, 16]), s.constant("k", np.full(dims, number, np.float32))
    s.output(s.op(op_type, *((k, x) if swap else (x, k)), name="cut"), None)
    return s.model()


@pytest.mark.parametrize(
    ("op_type", "number", "want"),
    [("Max", 0.0, "Relu"), ("Max", 0.5, "Clip"), ("Min", 6.0, "Clip"), ("Min", 0.0, "Clip")],
)
@pytest.mark.parametrize("swap", [False, True])
def test_one_number(op_type: str, number: float, want: str, swap: bool) -> None:
    model = _bounded(op_type, number, swap=swap)
    keeps(FuseClipSpelling(), model, [feed(model)])
    assert ops(model) == [want]


def _clip(low: float, high: float | None) -> ir.Model:
    s = Sketch()
    sides = [s.constant("low", np.float32(low))]
    sides += [] if high is None else [s.constant("high", np.float32(high))]
    s.output(s.op("Clip", s.input("x", [4, 16]), *sides), [4, 16])
    return s.model()


@pytest.mark.parametrize("high", [None, np.inf, np.finfo(np.float32).max])
def test_open_clip_is_a_relu(high: float | None) -> None:
    model = _clip(0.0, high)
    keeps(FuseClipSpelling(), model, [feed(model)])
    assert ops(model) == ["Relu"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-1.0, None)])
def test_other_clips_stay(low: float, high: float | None) -> None:
    assert not apply(FuseClipSpelling(), _clip(low, high)).rewrites


def test_leaves_a_constant_that_adds_dims_alone() -> None:
    result = apply(FuseClipSpelling(), _bounded("Max", 0.0, 1, 1, 1))
    assert reasons(result) == [("cut", "constant 'k' may add dims")]


def test_leaves_a_bound_that_is_no_number_alone() -> None:
    result = apply(FuseClipSpelling(), _bounded("Max", np.nan))
    assert reasons(result) == [("cut", "the bound is not a number")]


def test_leaves_vectors_and_integers_alone() -> None:
    assert not apply(FuseClipSpelling(), _bounded("Max", 0.0, 16)).rewrites
    s = Sketch()
    x = s.input("x", [4], ir.DataType.INT32)
    s.output(s.op("Max", x, s.constant("k", np.int32(0))), [4], ir.DataType.INT32)
    assert not apply(FuseClipSpelling(), s.model()).rewrites
