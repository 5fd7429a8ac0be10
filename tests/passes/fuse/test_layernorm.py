from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.io import to_bytes
from optcc.passkit.matcher import Match
from optcc.passkit.testing import bare_context
from passes.eliminate.identity import EliminateIdentity
from passes.fuse.layernorm import FuseLayerNorm
from tests.models.disguise import disguise
from tests.models.normalizations import DTYPES, ROOTS, SQUARES, Writer, layernorm, layernorm_core
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

FUSED = ["Neg", "LayerNormalization"]


def _feeds(model: ir.Model) -> list[dict[str, np.ndarray]]:
    return [feed(model, seed=n, N=n) for n in (1, 3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("square", SQUARES)
def test_every_spelling(square: str, root: str, dtype: type) -> None:
    model = layernorm(square=square, root=root, dtype=dtype).model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == FUSED
    [_, node] = model.graph
    assert (node.name, node.inputs[1].name, node.inputs[2].name) == ("bias", "g", "b")
    assert node.attributes.get_float("epsilon") == pytest.approx(1e-5, rel=2e-3)


@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        ((3, 6), [-1]),
        (("N", 6), [1]),
        (("N", 4, 6), [2]),
        (("N", 4, 6), [-2, -1]),
        (("N", 4, 6), [2, 1]),
        (("N", 5, 4, 6), [-1]),
        (("N", 5, 4, 6), [2, -1]),
        (("N", 5, 4, 6), [1, 2, 3]),
        ((4, 6), None),
        ((5, 4, 6), []),
    ],
)
def test_every_form_of_axes(
    dims: tuple[int | str, ...], axes: Sequence[int] | None, opset: int
) -> None:
    count = len(axes) if axes else len(dims)
    sizes = [int(d) for d in dims[len(dims) - count :]]
    model = layernorm(dims=dims, axes=axes, scale=sizes, bias=sizes, opset=opset).model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == FUSED
    assert model.graph[1].attributes.get_int("axis") == -count


@pytest.mark.parametrize("scale", [None, (), (1,), (6,), (1, 6), (1, 1, 6)])
@pytest.mark.parametrize("bias", [None, (), (6,), (1, 1, 6)])
def test_scales_and_biases(scale: tuple[int, ...] | None, bias: tuple[int, ...] | None) -> None:
    model = layernorm(scale=scale, bias=bias, eps_first=True).model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == FUSED
    assert [v.shape for v in model.graph[1].inputs[1:]] == [[6]] * (1 if bias is None else 2)


def test_scale_over_one_of_two_axes() -> None:
    model = layernorm(axes=[-2, -1], scale=[4, 1], bias=[6]).model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == FUSED


def _gained(s: Sketch, w: Writer, x: ir.Value, *, turned: bool) -> ir.Value:
    mean = w.mean(x)
    d = s.op("Sub", x, mean)
    inverse = s.op("Reciprocal", w.root(w.mean(s.op("Mul", d, d))))
    gain = s.op("Mul", inverse, s.weight("g", 6))
    b = s.weight("b", 6)
    if not turned:
        return s.op("Add", s.op("Mul", d, gain), b)
    rest = s.op("Sub", b, s.op("Mul", mean, gain))
    return s.op("Add", s.op("Mul", x, gain), rest)


@pytest.mark.parametrize("turned", [False, True], ids=["gain", "batchnorm-like"])
def test_scale_inside(turned: bool) -> None:
    s = Sketch()
    s.output(_gained(s, Writer(s), s.op("Neg", s.input("x", ["N", 4, 6])), turned=turned), None)
    model = s.model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == FUSED


@settings(deadline=None, max_examples=40)
@given(
    square=st.sampled_from(sorted(SQUARES)),
    root=st.sampled_from(sorted(ROOTS)),
    seed=st.integers(0, 10_000),
)
def test_disguises_are_seen_through(square: str, root: str, seed: int) -> None:
    model = disguise(layernorm(square=square, root=root).model(), seed)
    EliminateIdentity().run(model, bare_context())
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == FUSED


def _island(*, affine_inside: bool, residual: bool = False) -> Sketch:
    """x in half -> Cast -> normalization in float -> Cast -> half."""
    s = Sketch()
    half, wide = ir.DataType.FLOAT16, ir.DataType.FLOAT
    x = s.input("x", ["N", 4, 6], half)
    widened = s.op("Cast", x, to_=wide.value, name="widen")
    y = layernorm_core(Writer(s), widened)
    g = s.weight("g", 6, dtype=np.float32 if affine_inside else np.float16)
    b = s.weight("b", 6, dtype=np.float32 if affine_inside else np.float16)
    if affine_inside:
        y = s.op("Add", s.op("Mul", y, g), b)
    y = s.op("Cast", y, to_=half.value, name="narrow")
    if not affine_inside:
        y = s.op("Add", s.op("Mul", g, y), b)
    s.output(y, None, half)
    if residual:
        s.output(s.op("Relu", widened, name="other"), None)
    return s


def test_casts_that_the_operator_does_itself_vanish() -> None:
    model = _island(affine_inside=False).model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    assert ops(model) == ["LayerNormalization"]


@pytest.mark.parametrize("inside", [True, False])
def test_other_casts_stay(inside: bool) -> None:
    model = _island(affine_inside=inside, residual=not inside).model()
    keeps(FuseLayerNorm(), model, _feeds(model))
    rest = [] if inside else ["Mul", "Add", "Relu"]
    assert ops(model) == ["Cast", "LayerNormalization", "Cast", *rest]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"eps": None}, "no epsilon is added under the root"),
        ({"eps": None, "late": 1e-5}, "'k3' is added after the root, not before"),
        ({"late": 0.25}, "'k4' is added after the root, not before"),
        ({"eps": -1e-5}, "epsilon 'k3' is -1e-05"),
        ({"eps": 0.0}, "epsilon 'k3' is 0"),
        (
            {"axes": [1], "scale": None, "bias": None},
            "it averages over axes [1] of 3, not the last",
        ),
        (
            {"axes": [0, 2], "scale": None, "bias": None},
            "it averages over axes [0, 2] of 3, not the last",
        ),
        (
            {"dims": ("N", 4, "C"), "scale": None, "bias": None},
            "the size of the averaged axes of 'neg0_out' is not known",
        ),
        (
            {"axes": [-1], "scale": [4, 1], "bias": [4, 1]},
            "constant 'g' varies over axes that are not averaged",
        ),
        (
            {"axes": [2, 3], "dims": ("N", 3, 4, 6), "scale": [3, 1, 1], "bias": [3, 1, 1]},
            "constant 'g' varies over axes that are not averaged",
        ),
    ],
)
def test_leaves_alone(options: dict[str, object], reason: str) -> None:
    model = layernorm(**options).model()
    before = to_bytes(model)
    result = apply(FuseLayerNorm(), model)
    assert reasons(result) == [("core", reason)]
    assert to_bytes(model) == before


def test_leaves_means_without_their_axes_alone() -> None:
    model = layernorm(dims=(4, 4), scale=None, bias=None, options={"keepdims": 0}).model()
    [(node, reason)] = reasons(apply(FuseLayerNorm(), model))
    assert node == "core"
    assert reason.endswith("drops the averaged axes")


def test_leaves_different_axes_alone() -> None:
    s = Sketch()
    x, w = s.input("x", [2, 4, 4]), Writer(s)
    d = s.op("Sub", x, w.mean(x))
    variance = w.mean(s.op("Mul", d, d), axes=[-2])
    s.output(ROOTS["div"](w, d, variance), None)
    result = apply(FuseLayerNorm(), s.model())
    assert reasons(result) == [("core", "its means are taken over different axes")]


def test_leaves_computed_axes_alone() -> None:
    s = Sketch()
    x, axes = s.input("x", [2, 4]), s.input("axes", [1], ir.DataType.INT64)
    d = s.op("Sub", x, s.op("ReduceMean", x, axes, name="mean"))
    s.output(ROOTS["div"](Writer(s), d, s.op("ReduceMean", s.op("Mul", d, d), axes)), [2, 4])
    [(_, reason)] = reasons(apply(FuseLayerNorm(), s.model()))
    assert reason.startswith("the axes of ")


def test_leaves_double_precision_alone() -> None:
    """The operator computes its first stage in float."""
    s = Sketch()
    x = s.op("Cast", s.input("x", [2, 6]), to_=ir.DataType.DOUBLE.value)
    y = layernorm_core(Writer(s, np.float64), x)
    s.output(s.op("Cast", y, to_=ir.DataType.FLOAT.value), None)
    [(_, reason)] = reasons(apply(FuseLayerNorm(), s.model()))
    assert reason == "the type of 'cast0_out' is not float32 or narrower"


def test_leaves_old_opsets_alone() -> None:
    [(_, reason)] = reasons(apply(FuseLayerNorm(), layernorm(opset=16).model()))
    assert reason == "opset 16 has no LayerNormalization"


@pytest.mark.parametrize("inner", ["neg0", "spread", "core"])
def test_values_that_others_read(inner: str) -> None:
    """The input may have other readers, an inner value may not; the result before scale may."""
    s = layernorm()
    s.output(s.op("Relu", s.graph.node(inner).outputs[0], name="other"), None)
    model = s.model()
    result = FuseLayerNorm().run(model, bare_context())
    if inner == "spread":
        assert reasons(result) == [("core", "value 'spread_out' is also read by 'other'")]
    else:
        want = ["Neg", "LayerNormalization", "Mul", "Add"] if inner == "core" else FUSED
        assert [op for op in ops(model) if op != "Relu"] == want


def test_leaves_other_differences_alone() -> None:
    s = Sketch()
    x, w = s.input("x", [2, 6]), Writer(s)
    d = s.op("Sub", s.op("Abs", x), w.mean(x))
    s.output(ROOTS["div"](w, d, w.mean(s.op("Mul", d, d))), None)
    assert not apply(FuseLayerNorm(), s.model()).rewrites


def test_the_operator_keeps_its_bytes() -> None:
    s = Sketch()
    x = s.input("x", [2, 6])
    s.output(s.op("LayerNormalization", x, s.weight("g", 6), s.weight("b", 6)), None)
    model = s.model()
    before = to_bytes(model)
    result = apply(FuseLayerNorm(), model)
    assert (result.rewrites, result.rejects, to_bytes(model)) == ([], [], before)


class WrongEpsilon(FuseLayerNorm):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        y.producer().attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.05)
        return [y]


class NoBias(FuseLayerNorm):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        y.producer().resize_inputs(2)
        return [y]


class WrongAxis(FuseLayerNorm):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        y.producer().attributes["axis"] = ir.AttrInt64("axis", 1)
        return [y]


class LateIsEarly(FuseLayerNorm):
    def extended(self, m: Match) -> Match:
        m = replace(m, values={k: v for k, v in m.values.items() if k != "late"})
        return super().extended(m)


@pytest.mark.parametrize("twin", [WrongEpsilon, NoBias, WrongAxis])
def test_runner_catches_broken_twins(twin: type[FuseLayerNorm]) -> None:
    model = layernorm(dims=(3, 4, 6)).model()
    assert "'fuse.layernorm' broke its promise at 'bias'" in caught(twin(), model)


def test_runner_catches_a_late_epsilon() -> None:
    model = layernorm(dims=(3, 4, 6), late=0.25).model()
    assert "'fuse.layernorm' broke its promise at 'bias'" in caught(LateIsEarly(), model)
