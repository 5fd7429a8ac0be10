from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.testing import BareContext, bare_context
from passes.quantize.guard import GuardOptions, GuardQuantization
from passes.quantize.place import PlaceQuantization
from tests.models.layers import conv, minmax, residual_block, samples
from tests.models.sketch import Sketch


def _calibrated(model: ir.Model, **levels: float) -> BareContext:
    """Return a context with minmax ranges and the given figures of tried units."""
    context = bare_context(samples(model))
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    ranges = minmax(model, context.plan, context.feeds)
    context.ranges = replace(ranges, unit_sqnr_db=levels)
    return context


def test_a_noisy_unit_is_dropped_with_its_figure() -> None:
    model = residual_block()
    context = _calibrated(model, add_relu_out=12.34, first_relu_out=31.0)
    result = GuardQuantization().run(model, context)
    reason = "int8 alone leaves 12.3 dB of its result, less than 20 dB"
    assert [(r.node, r.reason) for r in result.rejects] == [("second", reason)]
    assert context.plan is not None
    assert [u.nodes[0] for u in context.plan.units] == ["stem", "first", "head"]
    decided = {d.node: (d.wanted, d.reason) for d in context.plan.decisions}
    assert decided["second"] == ("fp32", reason)
    assert decided["add"] == ("fp32", "Add is no part of an int8 layer")
    assert decided["first"] == ("int8", "")


@pytest.mark.parametrize(("level", "dropped"), [(19.99, 1), (20.0, 0), (35.0, 0)])
def test_the_limit_itself_is_enough(level: float, dropped: int) -> None:
    model = residual_block()
    context = _calibrated(model, head_out=level)
    assert len(GuardQuantization().run(model, context).rejects) == dropped


def test_a_unit_that_was_not_tried_stays() -> None:
    model = residual_block()
    context = _calibrated(model)
    before = to_bytes(model), context.plan
    assert GuardQuantization().run(model, context).rejects == []
    assert (to_bytes(model), context.plan) == before


def test_the_limit_is_an_option() -> None:
    model = residual_block()
    context = _calibrated(model, head_out=30.0)
    strict = GuardQuantization(GuardOptions(least_sqnr_db=40.0))
    assert [r.node for r in strict.run(model, context).rejects] == ["head"]


def test_what_only_handed_on_the_dropped_data_is_float_again() -> None:
    s = Sketch()
    stem = conv(s, s.input("x", [1, 16, 8, 8]), "stem")
    pool = s.op("MaxPool", stem, name="pool", kernel_shape=[2, 2], strides=[2, 2])
    s.output(conv(s, pool, "head"))
    model = s.model()
    context = _calibrated(model, stem_out=3.0)
    GuardQuantization().run(model, context)
    assert context.plan is not None
    assert [u.nodes for u in context.plan.units] == [("head",)]
    assert context.plan.shared_scale == []
    decided = {d.node: d.reason for d in context.plan.decisions}
    assert decided["pool"] == "the data around it is float"


def test_without_ranges_nothing_is_dropped() -> None:
    model = residual_block()
    context = _calibrated(model, head_out=1.0)
    context.ranges = None
    assert GuardQuantization().run(model, context).rejects == []


def test_without_a_plan_there_is_nothing_to_do() -> None:
    assert not GuardQuantization().run(residual_block(), bare_context()).rejects
