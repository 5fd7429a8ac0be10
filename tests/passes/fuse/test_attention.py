from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passes.fuse.attention as fusing
from passes.eliminate.identity import EliminateIdentity
from passes.fuse.attention import FuseAttention
from passes.fuse.attention_core import Core
from tests.models.attention import MASKS, MOVES, SCALES, attention
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons, run

NORMAL = "attention ({}) is in the normal form already"


def _factors(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph if n.op_type in ("Mul", "Div")]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", MOVES)
def test_every_scale_becomes_one_factor_on_q(scale: str, mask: str) -> None:
    model = attention(scale, mask).model()
    result = keeps(FuseAttention(), model, [feed(model, N=2)])
    assert len(result.rewrites) == 1
    assert _factors(model) == ["Mul"]
    product = model.graph.node("scores")
    factor = product.inputs[0].producer()
    assert factor.op_type == "Mul"
    np.testing.assert_allclose(factor.inputs[1].const_value.numpy(), 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("none", "no mask"),
        ("added", "mask added"),
        ("added-left", "mask added"),
        ("subtracted", "mask subtracted"),
        ("causal", "mask added"),
        ("where", "mask chosen"),
        ("where-swapped", "mask chosen"),
        ("two", "mask added and added"),
        ("reshaped", "mask added"),
    ],
)
@pytest.mark.parametrize("scale", ["none", "q"])
def test_the_normal_form_is_recognized_and_stays(scale: str, mask: str, words: str) -> None:
    model = attention(scale, mask).model()
    before = ops(model)
    result = apply(FuseAttention(), model)
    assert (result.rewrites, reasons(result)) == ([], [("mix", NORMAL.format(words))])
    assert ops(model) == before


@pytest.mark.parametrize("repeat", ["expand", "tile"])
@pytest.mark.parametrize("scale", ["scores", "early-both"])
def test_grouped_heads(repeat: str, scale: str) -> None:
    model = attention(scale, repeat=repeat).model()
    result = keeps(FuseAttention(), model, [feed(model, N=2)])
    assert "grouped heads" in result.rewrites[0].what
    assert _factors(model) == ["Mul"]


def test_a_scale_of_one_goes() -> None:
    s = attention("scores")
    [scale] = [n for n in s.graph if n.op_type == "Mul"]
    scale.inputs[1].const_value = ir.tensor(np.float32(1), name=scale.inputs[1].name)
    model = s.model()
    keeps(FuseAttention(), model, [feed(model, N=2)])
    assert _factors(model) == []


@pytest.mark.parametrize("mask", ["none", "causal", "where", "chosen-bias"])
def test_a_guard_that_never_acts_goes(mask: str) -> None:
    model = attention("q", mask, guard=True).model()
    [rewrite] = keeps(FuseAttention(), model, [feed(model, N=2)]).rewrites
    assert rewrite.what.endswith("guard against NaN removed")
    assert "IsNaN" not in ops(model)


def _endless(s: Sketch, x: ir.Value) -> ir.Value:
    condition = s.input("mask", ["N", 1, 5, 5], ir.DataType.BOOL)
    zero, low = (s.constant(f"b{k}", np.float32(k)) for k in (0, -np.inf))
    return s.op("Add", x, s.op("Where", condition, zero, low), name="masked")


@pytest.mark.parametrize("mask", ["added", _endless], ids=["unknown", "infinite"])
def test_a_guard_that_may_act_stays(mask) -> None:
    model = attention("q", mask, guard=True).model()
    assert reasons(apply(FuseAttention(), model)) == [("mix", NORMAL.format("mask added"))]
    assert "IsNaN" in ops(model)


def test_rows_masked_as_a_whole_keep_their_numbers() -> None:
    model = attention("scores", "where").model()
    inputs = feed(model, N=2)
    inputs["mask"] = np.zeros_like(inputs["mask"])
    before = run(model, inputs)["y"]
    apply(FuseAttention(), model)
    np.testing.assert_allclose(run(model, inputs)["y"], before, rtol=1e-5, atol=1e-6)


def _seen(s: Sketch, x: ir.Value) -> ir.Value:
    s.output(s.op("Neg", x, name="neg"), None)
    return x


def _shown(s: Sketch, x: ir.Value) -> ir.Value:
    s.output(x, None)
    return x


def _by(op_type: str, *dims: int, number: float = 0.5):
    def twist(s: Sketch, x: ir.Value) -> ir.Value:
        return s.op(
            op_type, x, s.constant("factor", np.full(dims, number, np.float32)), name="twist"
        )

    return twist


def _by_input(op_type: str):
    return lambda s, x: s.op(op_type, x, s.input("factor", [1]), name="twist")


def _dropout(training: bool | None):
    def twist(s: Sketch, x: ir.Value) -> ir.Value:
        ratio = s.constant("ratio", np.float32(0.0))
        if training is None:
            flag = s.input("training", [], ir.DataType.BOOL)
        else:
            flag = s.constant("training", np.array(training))
        return s.op("Dropout", x, ratio, flag, name="twist")

    return twist


def _squeezed(s: Sketch, x: ir.Value) -> ir.Value:
    other = s.op("Reshape", x, s.integers("t", 0, 4, 25, 1), name="other")
    return s.op("Reshape", other, s.integers("u", 0, 4, 5, 5))


NEAR = {
    "axis": ({"axis": 2}, "'softmax' is over axis 2, not over the last one"),
    "late-mask": (
        {"twist": {"probabilities": _by("Add", 1)}},
        "'twist' adds a mask after the Softmax",
    ),
    "late-where": (
        {
            "twist": {
                "probabilities": lambda s, x: s.op(
                    "Where", s.input("c", [1], ir.DataType.BOOL), x, s.weight("other"), name="twist"
                )
            }
        },
        "'twist' is a mask after the Softmax",
    ),
    "gated": ({"twist": {"probabilities": _by("Mul", 1)}}, "'twist' multiplies the probabilities"),
    "read": ({"twist": {"scores": _seen}}, "value 'scores.scale_out' is also read by 'neg'"),
    "read-probabilities": (
        {"twist": {"probabilities": _seen}},
        "value 'softmax_out' is also read by 'neg'",
    ),
    "output": ({"twist": {"masked": _shown}}, "value 'scores.scale_out' is also a graph output"),
    "training": (
        {"twist": {"probabilities": _dropout(True)}},
        "'twist' is a Dropout that may be in training mode",
    ),
    "training-input": (
        {"twist": {"probabilities": _dropout(None)}},
        "'twist' is a Dropout that may be in training mode",
    ),
    "per-head": (
        {"twist": {"scores": _by("Mul", 1, 4, 1, 1)}},
        "its scale 'factor' is not one number for all heads",
    ),
    "learned": ({"twist": {"scores": _by_input("Mul")}}, "its scale 'factor' is not constant"),
    "mask-first": (
        {"mask": "added", "twist": {"masked": _by("Mul")}},
        "'twist' scales after the mask",
    ),
    "other-rows": (
        {"twist": {"masked": _squeezed}},
        "'other' gives the scores other rows",
    ),
    "positive-fill": (
        {
            "mask": lambda s, x: s.op(
                "Where",
                s.input("c", [1], ir.DataType.BOOL),
                x,
                s.constant("fill", np.float32(1)),
                name="masked",
            )
        },
        "'masked' puts no negative number where it masks",
    ),
    "cast": (
        {
            "twist": {
                "scores": lambda s, x: _by("Mul")(s, s.op("Cast", x, to_=ir.DataType.FLOAT.value))
            }
        },
        "'twist' scales after the scores are cast",
    ),
}


@pytest.mark.parametrize("which", NEAR)
def test_near_misses_say_why(which: str) -> None:
    options, want = NEAR[which]
    model = attention("scores", **options).model()
    result = apply(FuseAttention(), model)
    assert (result.rewrites, reasons(result)) == ([], [("mix", want)])


def test_a_transpose_of_other_axes_is_a_near_miss() -> None:
    s = Sketch()
    q, k, v = (s.input(n, [2, 4, 4, 4]) for n in "qkv")
    turned = s.op("Transpose", k, perm=[0, 2, 1, 3], name="turned")
    p = s.op("Softmax", s.op("MatMul", q, turned), axis=-1)
    s.output(s.op("MatMul", p, v, name="mix"), [2, 4, 4, 4])
    want = "K ('turned_out') is not transposed on its last two axes"
    assert reasons(apply(FuseAttention(), s.model())) == [("mix", want)]


def test_dropout_in_inference_is_looked_through() -> None:
    model = attention("scores", twist={"probabilities": _dropout(False)}).model()
    keeps(FuseAttention(), model, [feed(model, N=2)])


@pytest.mark.parametrize("which", ["k", "q"])
def test_a_scaled_operand_that_others_read_keeps_its_scale(which: str) -> None:
    model = attention("both", twist={which: _seen}).model()
    inputs = feed(model, N=2)
    before = run(model, inputs)
    apply(FuseAttention(), model)
    for name, array in run(model, inputs).items():
        np.testing.assert_allclose(array, before[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("which", ["no-softmax", "pooling", "classifier"])
def test_what_is_no_attention_is_not_mentioned(which: str) -> None:
    s = Sketch()
    x, w = s.input("x", [2, 5, 5]), s.weight("w", 5, 5)
    if which == "no-softmax":
        p = s.op("MatMul", x, s.input("k", [2, 5, 5]))
    else:
        p = s.op("Softmax", s.op("MatMul", x, w), axis=-1)
    s.output(s.op("MatMul", p, w if which == "classifier" else s.input("v", [2, 5, 5])), [2, 5, 5])
    result = apply(FuseAttention(), s.model())
    assert (result.rewrites, result.rejects) == ([], [])


def test_a_scale_that_does_not_fit_its_type_stays() -> None:
    s = attention("both")
    for node in (n for n in s.graph if n.op_type == "Mul"):
        node.inputs[1].const_value = ir.tensor(np.float32(1e30), name=node.inputs[1].name)
    result = apply(FuseAttention(), s.model())
    assert reasons(result) == [("mix", "its scale 1e+60 does not fit float32")]


@settings(deadline=None, max_examples=30)
@given(
    scale=st.sampled_from(MOVES),
    mask=st.sampled_from(sorted(MASKS)),
    seed=st.integers(0, 10**6),
)
def test_spelling_does_not_matter(scale: str, mask: str, seed: int) -> None:
    """Other names, operands of Add and Mul the other way round, Identities, constants as nodes."""
    rng = np.random.default_rng(seed)
    s = attention(scale, mask)
    for node in list(s.graph):
        _disturb(s, node, rng)
    model = s.model()
    inputs = feed(model, N=2)
    before = run(model, inputs)["y"]
    apply(EliminateIdentity(), model)
    assert len(apply(FuseAttention(), model).rewrites) == 1
    assert not apply(FuseAttention(), model).rewrites
    np.testing.assert_allclose(run(model, inputs)["y"], before, rtol=1e-4, atol=1e-5)


def _disturb(s: Sketch, node: ir.Node, rng: np.random.Generator) -> None:
    if node.op_type in ("Add", "Mul") and rng.random() < 0.5:
        first, second = node.inputs
        node.replace_input_with(0, second)
        node.replace_input_with(1, first)
    for index, value in enumerate(node.inputs):
        if value.const_value is not None and rng.random() < 0.5:
            tensor = ir.tensor(value.const_value.numpy(), name=f"t{rng.integers(10**9)}")
            extra = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)])
        elif value.producer() is not None and rng.random() < 0.3:
            extra = ir.Node("", "Identity", [value])
        else:
            continue
        extra.name = extra.outputs[0].name = f"n{rng.integers(10**9)}"
        s.graph.insert_before(node, extra)
        node.replace_input_with(index, extra.outputs[0])
    node.name = f"r{rng.integers(10**9)}"


class Louder(FuseAttention):
    def scale(self, core: Core) -> float:
        return super().scale(core) * 1.05


class OneSided(FuseAttention):
    def scale(self, core: Core) -> float:
        return core.factors[0].number


@pytest.mark.parametrize("twin", [Louder(), OneSided()], ids=["wrong-scale", "lost-factor"])
@pytest.mark.parametrize("mask", ["none", "added", "where"])
def test_runner_catches_broken_twins(twin: FuseAttention, mask: str) -> None:
    assert "at 'mix'" in caught(twin, attention("both", mask).model())


def test_runner_catches_a_lost_mask(monkeypatch) -> None:
    right = fusing._move_scale

    def careless(graph: ir.Graph, core: Core, number: float, name: str) -> None:
        right(graph, core, number, name)
        core.softmax.replace_input_with(0, core.product.outputs[0])

    monkeypatch.setattr(fusing, "_move_scale", careless)
    assert "at 'mix'" in caught(FuseAttention(), attention("scores", "added").model())


def test_runner_catches_a_scale_on_another_operand(monkeypatch) -> None:
    right = fusing.core_at

    def crossed(node: ir.Node) -> Core | None:
        core = right(node)
        return core and replace(core, product=core.root)

    monkeypatch.setattr(fusing, "core_at", crossed)
    assert "at 'mix'" in caught(FuseAttention(), attention("scores").model())


def test_all_scales_are_tried() -> None:
    assert set(MOVES) | {"none", "q"} == set(SCALES)
