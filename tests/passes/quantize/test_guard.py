from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.testing import BareContext, bare_context
from passes.quantize.guard import GuardOptions, GuardQuantization
from passes.quantize.place import PlaceQuantization
from tests.models.layers import minmax, residual_block, samples, values_of
from tests.models.sketch import Sketch


class _Tapping(BareContext):
    """Runs models with inner values as further outputs, as the runner's context does."""

    def run(self, model: ir.Model, feeds: Feed, values: list[str]) -> Feed:  # type: ignore[override]
        return values_of(model, feeds, values)


def _calibrated(model: ir.Model, feeds: list[Feed]) -> _Tapping:
    context = _Tapping(feeds)
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    context.ranges = minmax(model, context.plan, feeds)
    return context


def _outlier() -> tuple[ir.Model, list[Feed]]:
    """Column 0 of x is 1000 times the others and its weights are tiny."""
    s = Sketch()
    weight = s.rng.standard_normal((32, 32)).astype(np.float32)
    weight[0] *= 1e-4
    product = s.op("MatMul", s.input("x", [8, 32]), s.constant("w", weight), name="outlier")
    total = s.op("Relu", product, name="relu")
    s.output(s.op("MatMul", total, s.weight("v", 32, 16), name="plain"), [8, 16])
    model = s.model()
    feeds = samples(model)
    for feed in feeds:
        feed["x"][:, 0] *= 1000
    return model, feeds


def test_a_layer_that_lives_on_one_large_channel_is_dropped() -> None:
    model, feeds = _outlier()
    context = _calibrated(model, feeds)
    result = GuardQuantization().run(model, context)
    assert [r.node for r in result.rejects] == ["outlier"]
    assert "int8 alone leaves" in result.rejects[0].reason
    assert context.plan is not None
    assert [u.nodes for u in context.plan.units] == [("plain",)]
    wanted = {d.node: (d.wanted, bool(d.reason)) for d in context.plan.decisions}
    assert wanted == {
        "outlier": ("fp32", True),
        "relu": ("fp32", True),
        "plain": ("int8", False),
    }


def test_ordinary_layers_stay() -> None:
    model = residual_block()
    context = _calibrated(model, samples(model))
    before = to_bytes(model)
    assert GuardQuantization().run(model, context).rejects == []
    assert context.plan is not None
    assert len(context.plan.units) == 4
    assert to_bytes(model) == before


def test_the_limit_is_an_option() -> None:
    model = residual_block()
    context = _calibrated(model, samples(model))
    strict = GuardQuantization(GuardOptions(least_sqnr_db=200.0))
    assert len(strict.run(model, context).rejects) == 4


@pytest.mark.parametrize("missing", ["samples", "ranges"])
def test_without_data_nothing_is_dropped(missing: str) -> None:
    model, feeds = _outlier()
    context = _calibrated(model, feeds)
    if missing == "samples":
        context.feeds = []
    else:
        context.ranges = None
    assert GuardQuantization().run(model, context).rejects == []


def test_without_a_plan_there_is_nothing_to_do() -> None:
    assert not GuardQuantization().run(residual_block(), bare_context()).rejects
