from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import ActivationRange, RangeTable
from optcc.passkit.testing import BareContext, bare_context
from optcc.runtime.session import Session
from passes.lower.onnxruntime import spelled_unsigned
from passes.lower.tensorrt import spelled_signed
from passes.quantize.bias_correction import CorrectBias
from passes.quantize.place import PlaceQuantization
from tests.models.layers import conv, minmax, perceptron, samples, single_conv, token_layer
from tests.models.sketch import Sketch


def _context(model: ir.Model, feeds: list[Feed], clip: float = 1.0) -> BareContext:
    """A context with minmax ranges; of the model's input only the share `clip` is kept."""
    context = bare_context(feeds)
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    table = dict(minmax(model, context.plan, feeds).signed)
    table["x"] = _cut(table["x"], clip)
    context.ranges = RangeTable(signed=table, unsigned=table)
    return context


def _cut(interval: ActivationRange, clip: float) -> ActivationRange:
    return ActivationRange(low=interval.low * clip, high=interval.high * clip, method="minmax")


def _positive(model: ir.Model, count: int = 8) -> list[Feed]:
    return [{n: np.abs(a) for n, a in feed.items()} for feed in samples(model, count, N=4, S=8)]


def _bias(model: ir.Model, feeds: list[Feed], spelled: ir.Model) -> float:
    """The mean error of the channels, as a share of the spread of the exact result."""
    exact = [next(iter(Session(to_bytes(model)).run(f).values())) for f in feeds]
    got = [next(iter(Session(to_bytes(spelled)).run(f).values())) for f in feeds]
    error = np.concatenate(exact) - np.concatenate(got)
    axes = (0, 2, 3) if error.ndim == 4 else tuple(range(error.ndim - 1))
    return float(np.abs(error.mean(axis=axes)).mean() / np.std(np.concatenate(exact)))


@pytest.mark.parametrize("build", [single_conv, lambda: single_conv(groups=16), perceptron])
def test_the_mean_error_of_clipped_data_goes(build) -> None:  # type: ignore[no-untyped-def]
    model = build()
    feeds = _positive(model)
    context = _context(model, feeds, clip=0.4)
    plan, ranges = context.plan, context.ranges
    assert plan is not None
    assert ranges is not None
    before = to_bytes(model)
    CorrectBias().run(model, context)
    corrected = context.plan
    assert corrected is not None
    assert to_bytes(model) == before
    for spell in (spelled_signed, lambda m, p, r: spelled_unsigned(m, p, r, "vnni")):
        plain = _bias(model, feeds, spell(model, plan, ranges))
        assert plain > 0.01
        assert _bias(model, feeds, spell(model, corrected, ranges)) < plain * 0.7


def test_the_bias_of_a_product_is_its_add() -> None:
    model = token_layer()
    feeds = _positive(model)
    context = _context(model, feeds, clip=0.5)
    CorrectBias().run(model, context)
    assert context.plan is not None
    assert context.ranges is not None
    assert list(context.plan.bias_shifts["signed"]) == ["up"], "'down' has no bias to shift"
    spelled = spelled_signed(model, context.plan, context.ranges)
    assert "b1.corrected" in spelled.graph.initializers


def test_a_convolution_without_bias_gets_one() -> None:
    s = Sketch()
    x = s.input("x", ["N", 16, 8, 8])
    s.output(s.op("Conv", x, s.weight("w", 16, 16, 3, 3), name="conv"), ["N", 16, 6, 6])
    model = s.model()
    context = _context(model, _positive(model), clip=0.4)
    CorrectBias().run(model, context)
    assert context.plan is not None
    assert context.ranges is not None
    spelled = spelled_signed(model, context.plan, context.ranges)
    node = next(n for n in spelled.graph if n.name == "conv")
    assert [v.name for v in node.inputs if v is not None][-1] == "conv.bias.corrected"


def test_a_correction_that_other_samples_deny_is_left_out() -> None:
    """The halves are the even and the odd feeds; their mean errors have opposite signs."""
    model = single_conv()
    feeds = [
        {"x": a * (1 if k % 2 else -1)} for k, f in enumerate(_positive(model)) for a in f.values()
    ]
    context = _context(model, feeds, clip=0.4)
    result = CorrectBias().run(model, context)
    assert {r.node for r in result.rejects} == {"conv"}
    assert "not the same on other samples" in result.rejects[0].reason
    assert context.plan is not None
    assert context.plan.bias_shifts == {"signed": {}, "unsigned": {}}


def test_one_feed_cannot_be_verified_and_gives_nothing() -> None:
    model = single_conv()
    context = _context(model, _positive(model, 1), clip=0.4)
    CorrectBias().run(model, context)
    assert context.plan is not None
    assert context.plan.bias_shifts == {}


def test_without_ranges_there_is_nothing_to_do() -> None:
    model = single_conv()
    context = _context(model, _positive(model))
    context.ranges = None
    assert CorrectBias().run(model, context).rejects == []


def test_a_shared_bias_is_shifted_for_its_own_reader_only() -> None:
    s = Sketch()
    x = s.input("x", ["N", 16, 8, 8])
    first = conv(s, x, "a")
    second = s.op("Conv", first, s.weight("w", 16, 16, 3, 3), s.graph.initializers["a_b"], name="b")
    s.output(second, ["N", 16, 6, 6])
    model = s.model()
    context = _context(model, _positive(model))
    assert context.plan is not None
    assert context.ranges is not None
    plan = replace(context.plan, bias_shifts={"signed": {"a": (1.0,) * 16}})
    spelled = spelled_signed(model, plan, context.ranges)
    read = {n.name: n.inputs[2] for n in spelled.graph if n.op_type == "Conv"}
    moved, kept = read["a"], read["b"]
    assert moved is not None
    assert kept is not None
    assert moved.const_value is not None
    assert kept.const_value is not None
    assert np.allclose(moved.const_value.numpy(), kept.const_value.numpy() + 1)
