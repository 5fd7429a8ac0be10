from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from passes.fold.reshape_targets import FoldReshapeTargets
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, run


def _dim(s: Sketch, x: ir.Value, axis: int) -> ir.Value:
    index = s.graph.initializers.get(f"i{axis}") or s.integers(f"i{axis}", axis)
    return s.op("Gather", s.op("Shape", x), index)


def _number(s: Sketch, number: int) -> ir.Value:
    return s.graph.initializers.get(f"n{number}") or s.integers(f"n{number}", number)


def _reshape(
    dims: list[int | str], parts: Callable[[Sketch, ir.Value], list[ir.Value]], **more: int
) -> ir.Model:
    s = Sketch()
    x = s.op("Relu", s.input("x", dims))
    target = s.op("Concat", *parts(s, x), axis=0)
    s.output(s.op("Neg", s.op("Reshape", x, target, name="reshape", **more)), None)
    return s.model()


def _target(model: ir.Model) -> list[int]:
    [node] = [n for n in model.graph if n.op_type == "Reshape"]
    return node.inputs[1].const_value.numpy().tolist()


def test_copied_and_open_dims() -> None:
    model = _reshape(["N", 4, 6], lambda s, x: [_dim(s, x, 0), _number(s, -1)])
    keeps(FoldReshapeTargets(), model, [feed(model, N=n) for n in (1, 3)])
    assert _target(model) == [0, -1]
    assert ops(model) == ["Relu", "Reshape", "Neg"]


def test_moved_dim_becomes_the_open_one() -> None:
    model = _reshape(["N", 4], lambda s, x: [_number(s, 2), _dim(s, x, 0), _number(s, 2)])
    keeps(FoldReshapeTargets(), model, [feed(model, N=n) for n in (1, 3)])
    assert _target(model) == [2, -1, 2]


def test_two_open_dims_stay_computed() -> None:
    model = _reshape(["A", "B"], lambda s, x: [_dim(s, x, 1), _dim(s, x, 0)])
    before = to_bytes(model)
    assert not apply(FoldReshapeTargets(), model).rewrites
    assert to_bytes(model) == before


def test_open_dim_beside_a_copied_one_stays_computed() -> None:
    """With an empty batch the number for -1 would be undefined."""
    s = Sketch()
    x = s.input("x", ["A", "B", 4])
    product = s.op("Mul", _dim(s, x, 1), s.integers("four", 4))
    target = s.op("Concat", _dim(s, x, 0), product, axis=0)
    s.output(s.op("Neg", s.op("Reshape", x, target)), None)
    assert not apply(FoldReshapeTargets(), s.model()).rewrites


def test_literal_zeros_stay_computed() -> None:
    model = _reshape(["N", 4], lambda s, x: [_dim(s, x, 0), _number(s, 4)], allowzero=1)
    assert not apply(FoldReshapeTargets(), model).rewrites


def test_dim_of_an_earlier_value_with_the_same_symbol() -> None:
    s = Sketch()
    x = s.input("x", ["N", 4, 6])
    target = s.op("Concat", _dim(s, x, 0), s.integers("open", -1), axis=0)
    s.output(s.op("Neg", s.op("Reshape", s.op("Relu", x), target)), None)
    model = s.model()
    keeps(FoldReshapeTargets(), model, [feed(model, N=n) for n in (1, 3)])
    assert _target(model) == [0, -1]


@pytest.mark.parametrize("repeated", [True, False])
def test_symbol_of_two_inputs_is_not_trusted(repeated: bool) -> None:
    s = Sketch()
    x, other = s.input("x", ["N", 4, 6]), s.input("other", ["N" if repeated else "M"])
    target = s.op("Concat", _dim(s, x, 0), s.integers("open", -1), axis=0)
    s.output(s.op("Neg", s.op("Reshape", s.op("Relu", x), target)), None)
    s.output(s.op("Neg", other), None)
    result = apply(FoldReshapeTargets(), s.model())
    assert bool(result.rewrites) is not repeated


def test_runner_catches_a_wrong_target(monkeypatch) -> None:
    from passes.fold import reshape_targets

    monkeypatch.setattr(reshape_targets, "_numbers", lambda dims: [2, 12])
    model = _reshape(["N", 4, 6], lambda s, x: [_dim(s, x, 0), _number(s, -1)])
    assert "at 'reshape'" in caught(FoldReshapeTargets(), model)


def test_an_empty_batch_still_runs() -> None:
    model = _reshape(["N", 4, 6], lambda s, x: [_dim(s, x, 0), _number(s, 24)])
    apply(FoldReshapeTargets(), model)
    [y] = run(model, {"x": np.zeros((0, 4, 6), np.float32)}).values()
    assert y.shape == (0, 24)
