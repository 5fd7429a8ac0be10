from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.fold.shapes import FoldShapes
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops


def _read(s: Sketch, value: ir.Value) -> ir.Model:
    s.output(s.op("Add", s.op("Cast", value, to_=1), s.input("z", [1])), None)
    return s.model()


def _folded(model: ir.Model) -> np.ndarray:
    [cast] = [n for n in model.graph if n.op_type == "Cast"]
    assert cast.inputs[0].is_initializer()
    return cast.inputs[0].const_value.numpy()


def _gather(s: Sketch, x: ir.Value, index: int) -> ir.Value:
    return s.op("Gather", s.op("Shape", x), s.constant(f"i{index}", np.array(index, np.int64)))


def test_static_dim_of_a_dynamic_input_folds() -> None:
    s = Sketch()
    model = _read(s, _gather(s, s.input("x", ["N", 5]), 1))
    keeps(FoldShapes(), model, [feed(model, N=n) for n in (1, 3)])
    assert "Shape" not in ops(model)
    assert _folded(model).tolist() == 5


def test_dynamic_dim_stays() -> None:
    s = Sketch()
    model = _read(s, _gather(s, s.input("x", ["N", 5]), 0))
    before = to_bytes(model)
    assert not apply(FoldShapes(), model).rewrites
    assert to_bytes(model) == before


def test_whole_chain_goes() -> None:
    s = Sketch()
    x = s.input("x", ["N", 6, 4])
    axes = s.integers("axes", 0)
    height = s.op("Unsqueeze", _gather(s, x, 1), axes)
    half = s.op("Div", height, s.integers("two", 2))
    width = s.op("Slice", s.op("Shape", x), s.integers("b", 2), s.integers("e", 3), axes)
    both = s.op("Concat", half, s.op("Mul", width, s.integers("m", -1)), axis=0)
    model = _read(s, both)
    result = keeps(FoldShapes(), model, [feed(model, N=2)])
    assert ops(model) == ["Cast", "Add"]
    assert _folded(model).tolist() == [3, -4]
    assert [r.what for r in result.rewrites] == ["Concat of static dims is [3, -4]"]


@pytest.mark.parametrize(
    ("attributes", "want"),
    [({"start": 1}, [2, 3, 4]), ({"start": -2}, [3, 4]), ({"start": 1, "end": -1}, [2, 3])],
)
def test_start_and_end_of_shape(attributes: dict[str, int], want: list[int]) -> None:
    s = Sketch()
    model = _read(s, s.op("Shape", s.input("x", ["N", 2, 3, 4]), **attributes))
    apply(FoldShapes(), model)
    assert _folded(model).tolist() == want


def test_size_and_types() -> None:
    s = Sketch()
    small = s.op("Cast", s.op("Size", s.input("x", [2, 3])), to_=int(ir.DataType.INT32))
    model = _read(s, small)
    keeps(FoldShapes(), model, [feed(model)])
    assert _folded(model).dtype == np.int32


def test_shape_that_only_the_file_declares_is_not_trusted() -> None:
    s = Sketch()
    y = s.op("Reshape", s.input("x", ["N"]), s.input("target", [2], ir.DataType.INT64), to="y")
    s.output(y, [2, 3])
    model = _read(s, s.op("Shape", y))
    assert not apply(FoldShapes(), model).rewrites


def test_runner_catches_a_wrong_number(monkeypatch) -> None:
    from passes.fold import shapes

    right = shapes.store_results
    monkeypatch.setattr(
        shapes, "store_results", lambda g, n, a, p: right(g, n, {k: v + 1 for k, v in a.items()}, p)
    )
    s = Sketch()
    model = _read(s, _gather(s, s.input("x", [2, 5]), 1))
    assert "fold.shapes" in caught(FoldShapes(), model)


def test_untraced_model_is_left_alone() -> None:
    s = Sketch()
    s.output(s.op("Shape", s.input("x", None)), None, ir.DataType.INT64)
    assert not FoldShapes().run(s.model(), bare_context()).rewrites
