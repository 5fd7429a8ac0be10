from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.edit import constant_of
from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import PerAxis, QuantPlan, QuantUnit, RangeTable
from optcc.passkit.testing import BareContext, bare_context
from optcc.runtime.session import Session
from passes.lower.onnxruntime import spelled_unsigned
from passes.lower.rules import SPELLINGS
from passes.lower.saturation import keeps_pairs
from passes.lower.tensorrt import spelled_signed
from passes.quantize.place import PlaceQuantization
from passes.quantize.rounding import CompensateRounding
from tests.models.layers import (
    conv,
    minmax,
    perceptron,
    residual_block,
    samples,
    single_conv,
    token_layer,
)
from tests.models.sketch import Sketch
from tests.passes.lower.spelled import constant, dequantizer, node


def _together(model: ir.Model, count: int, seed: int = 1) -> list[Feed]:
    """Positive data whose channels go together: one strength per position, and a little noise."""
    rng = np.random.default_rng(seed)
    feeds = samples(model, count, seed, N=4, S=8)
    common = [
        np.abs(rng.standard_normal((a := f["x"]).shape[:1] + (1,) * (a.ndim - 1))) for f in feeds
    ]
    return [
        {"x": (c + 0.05 * np.abs(f["x"])).astype(np.float32)}
        for c, f in zip(common, feeds, strict=True)
    ]


def _context(model: ir.Model, feeds: list[Feed], cpu_class: str = "vnni") -> BareContext:
    context = bare_context(feeds)
    context.cpu_class = cpu_class
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    context.ranges = minmax(model, context.plan, feeds)
    return context


def _spelled(model: ir.Model, context: BareContext, plan: QuantPlan) -> dict[str, ir.Model]:
    assert context.ranges is not None
    return {
        "signed": spelled_signed(model, plan, context.ranges),
        "unsigned": spelled_unsigned(model, plan, context.ranges, context.cpu_class),
    }


def _weights_only_db(model: ir.Model, spelled: ir.Model, name: str, feeds: list[Feed]) -> float:
    """The SQNR of the result of one layer with nothing but its weight rounded."""
    copy = model.clone()
    reader, written = node(copy, name), dequantizer(node(spelled, name), 1)
    old = reader.inputs[1]
    assert old is not None
    data, scale = constant(written, 0).astype(np.float32), constant(written, 1)
    axis = written.attributes.get_int("axis", 1)
    old.const_value = ir.tensor(
        data * scale.reshape([-1 if a == axis else 1 for a in range(data.ndim)])
    )
    exact = np.concatenate([_first(model, f).reshape(-1) for f in feeds])
    got = np.concatenate([_first(copy, f).reshape(-1) for f in feeds])
    return float(10 * np.log10((exact**2).sum() / ((exact - got) ** 2).sum()))


def _first(model: ir.Model, feed: Feed) -> np.ndarray:
    return next(iter(Session(to_bytes(model)).run(feed).values()))


def _gemm(trans_b: int) -> ir.Model:
    s = Sketch()
    dims = (24, 64) if trans_b else (64, 24)
    x = s.input("x", ["N", 64])
    s.output(s.op("Gemm", x, s.weight("w", *dims), name="fc", transB=trans_b), None)
    return s.model()


def _matmul() -> ir.Model:
    s = Sketch()
    x = s.input("x", ["N", "S", 64])
    s.output(s.op("MatMul", x, s.weight("w", 64, 24), name="up"), None)
    return s.model()


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (single_conv, "conv"),
        (lambda: single_conv(groups=4), "conv"),
        (lambda: single_conv(groups=16), "conv"),
        (lambda: _gemm(0), "fc"),
        (lambda: _gemm(1), "fc"),
        (_matmul, "up"),
    ],
)
def test_errors_of_inputs_that_go_together_cancel(build: Callable[[], ir.Model], name: str) -> None:
    """More than 3 dB, on samples that took no part."""
    model = build()
    context = _context(model, _together(model, 24))
    plain, before = context.plan, to_bytes(model)
    assert plain is not None
    assert CompensateRounding().run(model, context).rejects == []
    assert to_bytes(model) == before
    assert context.plan is not None
    unseen = _together(model, 6, seed=9)
    old, new = (_spelled(model, context, p) for p in (plain, context.plan))
    for spelling in SPELLINGS:
        gain = _weights_only_db(model, new[spelling], name, unseen) - _weights_only_db(
            model, old[spelling], name, unseen
        )
        assert gain > 3, spelling


@pytest.mark.parametrize("cpu_class", ["vnni", "avx2"])
@pytest.mark.parametrize("build", [residual_block, perceptron, token_layer])
def test_both_spellings_write_the_planned_integers(
    build: Callable[[], ir.Model], cpu_class: str
) -> None:
    model = build()
    context = _context(model, _together(model, 8), cpu_class)
    CompensateRounding().run(model, context)
    assert context.plan is not None
    for spelling, spelled in _spelled(model, context, context.plan).items():
        planned = context.plan.roundings[spelling]
        assert planned
        for name, rounding in planned.items():
            written = dequantizer(node(spelled, name), 1)
            assert np.array_equal(constant(written, 0), rounding.data)
            assert np.array_equal(constant(written, 1), rounding.scale)


@pytest.mark.parametrize(("cpu_class", "qmax"), [("vnni", 127), ("avx2", 64)])
def test_no_unsigned_integers_saturate_a_kernel(cpu_class: str, qmax: int) -> None:
    s = Sketch()
    x = s.input("x", ["N", 16, 8, 8])
    weight = s.constant("w", np.abs(s.rng.standard_normal((16, 16, 3, 3))).astype(np.float32))
    s.output(s.op("Conv", x, weight, name="conv"), None)
    model = s.model()
    context = _context(model, _together(model, 8), cpu_class)
    CompensateRounding().run(model, context)
    assert context.plan is not None
    data = context.plan.roundings["unsigned"]["conv"].data
    assert keeps_pairs(data, 0)
    assert np.abs(data.astype(int)).max() <= qmax
    assert not keeps_pairs(context.plan.roundings["signed"]["conv"].data, 0)


def test_a_channel_that_other_samples_deny_keeps_the_nearest_integers() -> None:
    """Even feeds hold only the first channels of the data, odd feeds only the others."""
    model = single_conv(groups=1)
    feeds = _together(model, 8)
    for k, feed in enumerate(feeds):
        feed["x"][:, 8 * (k % 2) : 8 * (k % 2) + 8] = 0
    context = _context(model, feeds)
    plain = context.plan
    assert plain is not None
    CompensateRounding().run(model, context)
    assert context.plan is not None
    old, new = (
        constant(dequantizer(node(_spelled(model, context, p)["signed"], "conv"), 1), 0)
        for p in (plain, context.plan)
    )
    same = [np.array_equal(a, b) for a, b in zip(old, new, strict=True)]
    assert any(same)


def test_data_of_independent_channels_gains_nothing_and_says_so() -> None:
    model = single_conv(groups=16)
    weight = model.graph.initializers["conv_w"]
    only = np.zeros((16, 1, 3, 3), np.float32)
    only[:, 0, 1, 1] = 1.0
    weight.const_value = ir.tensor(only)
    context = _context(model, _together(model, 8))
    result = CompensateRounding().run(model, context)
    assert {r.node for r in result.rejects} == {"conv"}
    assert "the nearest integers are as good on other samples" in result.rejects[0].reason
    assert context.plan is not None
    assert context.plan.roundings == {"signed": {}, "unsigned": {}}


def test_two_runs_give_the_same_bytes() -> None:
    found = []
    for _ in range(2):
        model = residual_block()
        context = _context(model, _together(model, 8))
        CompensateRounding().run(model, context)
        assert context.plan is not None
        spelled = _spelled(model, context, context.plan)
        found.append([to_bytes(spelled[s]) for s in SPELLINGS])
    assert found[0] == found[1]


def test_a_transposed_convolution_is_left_alone() -> None:
    s = Sketch()
    x = s.input("x", ["N", 16, 8, 8])
    s.output(s.op("ConvTranspose", x, s.weight("w", 16, 16, 2, 2), name="up"), None)
    model = s.model()
    result = CompensateRounding().run(model, _context(model, _together(model, 4)))
    assert [(r.node, r.reason) for r in result.rejects] == [
        ("up", "the inputs of each sum of a ConvTranspose are not looked at")
    ]


def test_a_weight_that_is_computed_is_left_alone() -> None:
    s = Sketch()
    x = s.input("x", ["N", 16, 8, 8])
    weight = s.op("Neg", s.input("raw", [16, 16, 3, 3]), name="made")
    s.output(s.op("Conv", x, weight, name="conv"), None)
    model = s.model()
    feeds = samples(model, 4)
    context = bare_context(feeds)
    unit = QuantUnit(
        nodes=("conv",),
        activations=("x",),
        output="conv_out",
        weight="made_out",
        granularity=PerAxis(0),
    )
    context.plan = QuantPlan(units=[unit])
    context.ranges = minmax(model, context.plan, feeds)
    result = CompensateRounding().run(model, context)
    assert [r.reason for r in result.rejects] == ["its weight 'made_out' is not a constant"]


def test_a_shared_weight_is_left_alone() -> None:
    s = Sketch()
    x = s.input("x", ["N", 16, 8, 8])
    first = conv(s, x, "a")
    s.output(s.op("Conv", first, s.graph.initializers["a_w"], name="b"), None)
    model = s.model()
    result = CompensateRounding().run(model, _context(model, _together(model, 4)))
    assert {r.reason for r in result.rejects} == {"its weight 'a_w' also feeds another node"}


def test_a_sample_that_is_not_finite_stops_its_layers_only() -> None:
    model = residual_block()
    feeds = _together(model, 6)
    context = _context(model, feeds)
    feeds[3]["x"][0, 0, 0, 0] = np.nan
    context.feeds = feeds
    result = CompensateRounding().run(model, context)
    assert "stem" in {r.node for r in result.rejects if "not finite" in r.reason}


def test_one_feed_cannot_be_verified_and_gives_nothing() -> None:
    model = single_conv()
    context = _context(model, _together(model, 1))
    CompensateRounding().run(model, context)
    assert context.plan is not None
    assert context.plan.roundings == {}


def test_without_ranges_there_is_nothing_to_do() -> None:
    model = single_conv()
    context = _context(model, _together(model, 4))
    context.ranges = None
    assert CompensateRounding().run(model, context).rejects == []


def test_a_plan_that_no_longer_fits_the_bias_is_not_written() -> None:
    model = single_conv()
    context = _context(model, _together(model, 8))
    CompensateRounding().run(model, context)
    assert context.plan is not None
    assert context.ranges is not None
    planned = context.plan.roundings["signed"]["conv"]
    tiny = {
        n: replace(r, low=r.low * 1e-12, high=r.high * 1e-12)
        for n, r in context.ranges.signed.items()
    }
    spelled = spelled_signed(model, context.plan, RangeTable(signed=tiny, unsigned=tiny))
    written = constant(dequantizer(node(spelled, "conv"), 1), 1)
    assert np.all(written >= planned.scale)
    assert not np.array_equal(written, planned.scale)
    bias = constant_of(node(model, "conv").inputs[2])
    assert bias is not None
