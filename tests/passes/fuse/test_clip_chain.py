from __future__ import annotations

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.fuse.clip_bounds import Bounds
from passes.fuse.clip_chain import FuseClipChain
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

Side = float | None


def _chain(*cuts: tuple[Side, Side] | str, dtype: ir.DataType = ir.DataType.FLOAT) -> Sketch:
    s = Sketch()
    x = s.input("x", [4, 16], dtype)
    for k, cut in enumerate(cuts):
        if cut == "relu":
            x = s.op("Relu", x, name=f"n{k}")
            continue
        sides = [
            None if v is None else s.constant(f"{side}{k}", np.array(v, dtype.numpy()))
            for side, v in zip(("low", "high"), cut, strict=True)
        ]
        x = s.op("Clip", x, *sides, name=f"n{k}")
    s.output(x, [4, 16], dtype)
    return s


CUTS = st.one_of(
    st.just("relu"),
    st.tuples(st.sampled_from([None, -1.0, 0.0, 0.5]), st.sampled_from([None, 1.0, 2.0])),
)


@settings(deadline=None, max_examples=30)
@given(first=CUTS, second=CUTS)
def test_same_numbers(first, second) -> None:
    model = _chain(first, second).model()
    keeps(FuseClipChain(), model, [feed(model)])
    assert len(ops(model)) == 1


def test_relu_takes_the_lower_bound() -> None:
    model = _chain((-1.0, None), "relu").model()
    apply(FuseClipChain(), model)
    assert ops(model) == ["Relu"]


def test_bounds_have_the_type_of_the_value() -> None:
    model = _chain("relu", (-1.0, 1.0), dtype=ir.DataType.DOUBLE).model()
    keeps(FuseClipChain(), model, [feed(model)])
    assert [v.dtype for v in model.graph[0].inputs] == [ir.DataType.DOUBLE] * 3


def test_three_cuts_become_one() -> None:
    model = _chain("relu", (None, 6.0), (0.5, 2.0)).model()
    apply(FuseClipChain(), model)
    assert ops(model) == ["Clip"]


def test_leaves_bounds_that_are_inputs_alone() -> None:
    s = Sketch()
    high = s.input("high", [])
    s.output(s.op("Clip", s.op("Relu", s.input("x", [4])), None, high, name="clip"), [4])
    [(node, reason)] = reasons(apply(FuseClipChain(), s.model()))
    assert (node, reason) == ("clip", "its bounds are not constant, or leave nothing between them")


def test_leaves_integers_alone() -> None:
    s = _chain("relu", (1, 5), dtype=ir.DataType.INT32)
    assert reasons(apply(FuseClipChain(), s.model())) == [("n1", "the type of 'x' is not float")]


def test_leaves_an_empty_interval_alone() -> None:
    assert not apply(FuseClipChain(), _chain("relu", (3.0, 1.0)).model()).rewrites


def test_runner_catches_a_wrong_composition(monkeypatch) -> None:
    monkeypatch.setattr(Bounds, "then", lambda self, later: later)
    assert "at 'n1'" in caught(FuseClipChain(), _chain("relu", (-1.0, 1.0)).model())
