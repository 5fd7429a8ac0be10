from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.eliminate.identity import EliminateIdentity
from tests.models.sketch import Sketch
from tests.models.small import chain
from tests.passes.promise import apply, feed, keeps, ops, reasons

Maker = Callable[[Sketch, ir.Value], ir.Value]
FLOAT = int(ir.DataType.FLOAT)

NOOPS: dict[str, Maker] = {
    "identity": lambda s, x: s.op("Identity", x),
    "cast": lambda s, x: s.op("Cast", x, to_=FLOAT),
    "reshape": lambda s, x: s.op("Reshape", x, s.integers("k", 0, 4, -1)),
    "transpose": lambda s, x: s.op("Transpose", x, perm=[0, 1, 2]),
    "dropout": lambda s, x: s.op("Dropout", x),
    "dropout-inference": lambda s, x: s.op(
        "Dropout", x, s.constant("r", np.float32(0.5)), s.constant("t", np.bool_(False))
    ),
    "pad": lambda s, x: s.op("Pad", x, s.integers("k", *[0] * 6)),
    "slice": lambda s, x: s.op(
        "Slice", x, s.integers("b", 0), s.integers("e", 4), s.integers("a", 1)
    ),
    "slice-open": lambda s, x: s.op(
        "Slice", x, s.integers("b", 0), s.integers("e", 2**63 - 1), s.integers("a", 0)
    ),
    "expand": lambda s, x: s.op("Expand", x, s.integers("k", 1, 1)),
    "tile": lambda s, x: s.op("Tile", x, s.integers("k", 1, 1, 1)),
    "concat": lambda s, x: s.op("Concat", x, axis=1),
    "sum": lambda s, x: s.op("Sum", x),
    "clip": lambda s, x: s.op("Clip", x),
    "mul": lambda s, x: s.op("Mul", x, s.constant("k", np.float32(1))),
    "sub": lambda s, x: s.op("Sub", x, s.constant("k", np.float32(0))),
}

CHANGES: dict[str, Maker] = {
    "cast": lambda s, x: s.op("Cast", s.op("Cast", x, to_=int(ir.DataType.DOUBLE)), to_=FLOAT),
    "reshape": lambda s, x: s.op("Reshape", x, s.integers("k", 0, 2, -1)),
    "reshape-two-open": lambda s, x: s.op("Reshape", x, s.integers("k", 4, -1, 6)),
    "transpose": lambda s, x: s.op("Transpose", x, perm=[0, 2, 1]),
    "pad": lambda s, x: s.op("Pad", x, s.integers("k", 0, 0, 0, 0, 0, 1)),
    "slice": lambda s, x: s.op(
        "Slice", x, s.integers("b", 0), s.integers("e", 3), s.integers("a", 1)
    ),
    "slice-reversed": lambda s, x: s.op(
        "Slice", x, s.integers("b", 0), s.integers("e", 4), s.integers("a", 1), s.integers("p", 2)
    ),
    "slice-dynamic": lambda s, x: s.op(
        "Slice", x, s.integers("b", 0), s.integers("e", 100), s.integers("a", 0)
    ),
    "expand": lambda s, x: s.op("Expand", x, s.integers("k", 2, 1, 1, 1)),
    "tile": lambda s, x: s.op("Tile", x, s.integers("k", 1, 2, 1)),
    "concat": lambda s, x: s.op("Concat", x, x, axis=1),
    "mul-adds-dims": lambda s, x: s.op(
        "Mul", x, s.constant("k", np.ones((1, 1, 1, 1), np.float32))
    ),
    "add-zero": lambda s, x: s.op("Add", x, s.constant("k", np.float32(0))),
    "sub-from": lambda s, x: s.op("Sub", s.constant("k", np.float32(0)), x),
}


def _sketch(make: Maker, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Model:
    s = Sketch()
    x = s.op("Relu", s.input("x", ["N", 4, 6], dtype))
    s.output(s.op("Neg", make(s, x)), None, dtype)
    return s.model()


@pytest.mark.parametrize("name", NOOPS)
def test_removes(name: str) -> None:
    model = _sketch(NOOPS[name])
    keeps(EliminateIdentity(), model, [feed(model, N=n) for n in (1, 3)])
    assert ops(model) == ["Relu", "Neg"]
    assert not model.graph.initializers


@pytest.mark.parametrize("name", CHANGES)
def test_leaves_alone(name: str) -> None:
    model = _sketch(CHANGES[name])
    before = to_bytes(model)
    assert not EliminateIdentity().run(model, bare_context()).rewrites
    assert to_bytes(model) == before


def test_graph_output_keeps_its_name() -> None:
    s = Sketch()
    s.output(s.op("Identity", s.op("Relu", s.input("x", [2, 8])), to="y"), [2, 8])
    model = s.model()
    keeps(EliminateIdentity(), model, [feed(model)])
    assert ops(model) == ["Relu"]
    assert model.graph.outputs[0].name == "y"


def test_input_that_is_an_output_needs_its_identity() -> None:
    model = chain("Identity")
    result = apply(EliminateIdentity(), model)
    assert reasons(result) == [(model.graph[0].name, "it carries the output 'y' of the graph")]


def test_mask_that_is_read_keeps_the_dropout() -> None:
    s = Sketch()
    s.op("Dropout", s.input("x", [2]), name="drop", to=("kept", "mask"))
    drop = s.graph.node("drop")
    s.output(s.op("Neg", drop.outputs[0]), [2])
    s.output(drop.outputs[1], [2], ir.DataType.BOOL)
    assert reasons(apply(EliminateIdentity(), s.model())) == [("drop", "its mask is read")]


def test_training_dropout_is_no_identity() -> None:
    s = Sketch()
    ratio, training = s.constant("r", np.float32(0.5)), s.constant("t", np.bool_(True))
    s.output(s.op("Neg", s.op("Dropout", s.input("x", [2]), ratio, training)), [2])
    assert not apply(EliminateIdentity(), s.model()).rewrites


def test_declared_shape_of_an_output_proves_nothing() -> None:
    s = Sketch()
    target = s.input("target", [1], ir.DataType.INT64)
    s.output(s.op("Reshape", s.op("Relu", s.input("x", [4])), target, to="y"), [4])
    assert not apply(EliminateIdentity(), s.model()).rewrites


def test_identity_of_a_constant_is_left_to_folding() -> None:
    s = Sketch()
    s.output(s.op("MatMul", s.input("x", [2, 3]), s.op("Identity", s.weight("w", 3, 4))), [2, 4])
    assert not apply(EliminateIdentity(), s.model()).rewrites
