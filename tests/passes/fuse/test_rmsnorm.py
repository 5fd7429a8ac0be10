from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.io import to_bytes
from optcc.passkit.matcher import Match
from optcc.passkit.testing import bare_context
from passes.eliminate.identity import EliminateIdentity
from passes.fuse.rmsnorm import FuseRmsNorm
from tests.models.disguise import disguise
from tests.models.normalizations import (
    DTYPES,
    ROOTS,
    Writer,
    layernorm,
    rmsnorm,
    rmsnorm_core,
)
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

FUSED = ["Neg", "RMSNormalization"]
SPELLED = ["Neg", "Pow", "ReduceMean", "Add", "Sqrt", "Div"]


def _feeds(model: ir.Model) -> list[dict[str, np.ndarray]]:
    return [feed(model, seed=n, N=n) for n in (1, 3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("square", ["pow", "mul"])
def test_every_spelling_becomes_the_operator(square: str, root: str, dtype: type) -> None:
    model = rmsnorm(square=square, root=root, dtype=dtype, opset=23).model()
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == FUSED
    assert model.graph[1].inputs[1].name == "g"
    assert model.graph[1].name == "scale"


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("square", ["pow", "mul"])
def test_every_spelling_becomes_the_one(square: str, root: str, dtype: type, opset: int) -> None:
    model = rmsnorm(square=square, root=root, dtype=dtype, opset=opset).model()
    before = to_bytes(model)
    if (square, root) == ("pow", "div"):
        result = apply(FuseRmsNorm(), model)
        assert (result.rewrites, result.rejects, to_bytes(model)) == ([], [], before)
    else:
        keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == [*SPELLED, "Mul"]


@pytest.mark.parametrize("opset", [17, 21, 23])
@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        (("N", 6), [1]),
        (("N", 4, 6), [-1]),
        (("N", 4, 6), [2, 1]),
        (("N", 5, 4, 6), [-2, -1]),
        ((4, 6), None),
    ],
)
def test_every_form_of_axes(
    dims: tuple[int | str, ...], axes: Sequence[int] | None, opset: int
) -> None:
    count = len(axes) if axes else len(dims)
    sizes = [int(d) for d in dims[len(dims) - count :]]
    model = rmsnorm(square="mul", dims=dims, axes=axes, scale=sizes, opset=opset).model()
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == (FUSED if opset == 23 else [*SPELLED, "Mul"])


@pytest.mark.parametrize("scale", [None, (), (1,), (1, 6), (1, 1, 6)])
def test_scales(scale: tuple[int, ...] | None) -> None:
    model = rmsnorm(scale=scale, opset=23).model()
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == FUSED
    assert model.graph[1].inputs[1].shape == [6]


@pytest.mark.parametrize("opset", [21, 23])
def test_scale_inside(opset: int) -> None:
    s = Sketch(opset)
    x, w = s.op("Neg", s.input("x", ["N", 4, 6])), Writer(s)
    inverse = s.op("Reciprocal", w.root(w.mean(s.op("Mul", x, x))))
    s.output(s.op("Mul", s.op("Mul", s.weight("g", 6), inverse), x), None)
    model = s.model()
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == (FUSED if opset == 23 else [*SPELLED, "Mul"])


def _llama(opset: int) -> Sketch:
    """x in half -> Cast -> x * reciprocal root in float -> Cast -> * scale in half."""
    s = Sketch(opset)
    half = ir.DataType.FLOAT16
    x = s.op("Cast", s.input("x", ["N", 4, 6], half), to_=ir.DataType.FLOAT.value)
    y = s.op("Cast", rmsnorm_core(Writer(s), x, "pow", "reciprocal"), to_=half.value)
    s.output(s.op("Mul", s.weight("g", 6, dtype=np.float16), y), None, half)
    return s


def test_casts_of_llama_vanish_with_the_operator() -> None:
    model = _llama(23).model()
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == ["RMSNormalization"]


def test_casts_of_llama_stay_around_the_spelling() -> None:
    model = _llama(21).model()
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == ["Cast", *SPELLED[1:], "Cast", "Mul"]


@settings(deadline=None, max_examples=40)
@given(
    square=st.sampled_from(["pow", "mul"]),
    root=st.sampled_from(sorted(set(ROOTS) - {"div"})),
    opset=st.sampled_from([21, 23]),
    seed=st.integers(0, 10_000),
)
def test_disguises_are_seen_through(square: str, root: str, opset: int, seed: int) -> None:
    model = disguise(rmsnorm(square=square, root=root, opset=opset).model(), seed)
    EliminateIdentity().run(model, bare_context())
    keeps(FuseRmsNorm(), model, _feeds(model))
    assert ops(model) == (FUSED if opset == 23 else [*SPELLED, "Mul"])


@pytest.mark.parametrize("opset", [21, 23])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"eps": None}, "no epsilon is added under the root"),
        ({"eps": None, "late": 1e-5}, "'k2' is added after the root, not before"),
        ({"eps": 0.0}, "epsilon 'k2' is 0"),
        ({"axes": [1], "scale": None}, "it averages over axes [1] of 3, not the last"),
        (
            {"axes": [2, 3], "dims": ("N", 3, 4, 6), "scale": [3, 1, 1]},
            "constant 'g' varies over axes that are not averaged",
        ),
        (
            {"dims": ("N", 4, "C"), "scale": None},
            "the size of the averaged axes of 'neg0_out' is not known",
        ),
    ],
)
def test_leaves_alone(options: dict[str, object], reason: str, opset: int) -> None:
    model = rmsnorm(root="reciprocal", opset=opset, **options).model()
    before = to_bytes(model)
    result = apply(FuseRmsNorm(), model)
    assert reasons(result) == [("core", reason)]
    assert to_bytes(model) == before


def test_leaves_a_root_with_two_readers_alone() -> None:
    """Where several values share one root there is no single normalization."""
    s = rmsnorm(root="reciprocal")
    s.output(s.op("Relu", s.graph.node("spread").outputs[0], name="other"), None)
    result = apply(FuseRmsNorm(), s.model())
    assert reasons(result) == [("core", "value 'spread_out' is also read by 'other'")]


@pytest.mark.parametrize("opset", [21, 23])
def test_leaves_layer_normalizations_to_their_pass(opset: int) -> None:
    result = apply(FuseRmsNorm(), layernorm(root="reciprocal", opset=opset).model())
    assert (result.rewrites, result.rejects) == ([], [])


def test_leaves_the_root_of_other_values_alone() -> None:
    s = Sketch(23)
    x, w = s.input("x", [2, 6]), Writer(s)
    s.output(ROOTS["div"](w, s.op("Abs", x), w.mean(s.op("Mul", x, x))), None)
    result = apply(FuseRmsNorm(), s.model())
    assert (result.rewrites, result.rejects) == ([], [])


class WrongEpsilon(FuseRmsNorm):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        y.producer().attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.05)
        return [y]


class WrongAxis(FuseRmsNorm):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        y.producer().attributes["axis"] = ir.AttrInt64("axis", 1)
        return [y]


class UpsideDown(FuseRmsNorm):
    """Divides the root by the value."""

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        node = y.producer()
        first, second = node.inputs
        node.replace_input_with(0, second)
        node.replace_input_with(1, first)
        return [y]


@pytest.mark.parametrize(("twin", "opset"), [(WrongEpsilon, 23), (WrongAxis, 23), (UpsideDown, 21)])
def test_runner_catches_broken_twins(twin: type[FuseRmsNorm], opset: int) -> None:
    model = rmsnorm(dims=(3, 4, 6), root="reciprocal", opset=opset).model()
    assert "'fuse.rmsnorm' broke its promise at " in caught(twin(), model)
