from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.testing import BareContext, bare_context
from passes.quantize.place import PlaceQuantization
from passes.quantize.relax import RelaxOptions, RelaxQuantization, some_feeds
from tests.models.layers import minmax, residual_block, samples
from tests.models.sketch import Sketch


def _context(model: ir.Model, feeds: list[Feed]) -> BareContext:
    context = bare_context(feeds)
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    context.ranges = minmax(model, context.plan, feeds)
    return context


def _chain() -> tuple[ir.Model, list[Feed]]:
    """Four layers; the data of the third is drowned by one column that carries nothing."""
    s = Sketch()
    value = s.input("x", [16, 32])
    for k in range(4):
        weight = s.rng.standard_normal((32, 32)).astype(np.float32) / 6
        if k == 1:
            weight[:, 0] *= 1e3
        if k == 2:
            weight[0] *= 1e-5
        value = s.op("MatMul", value, s.constant(f"w{k}", weight), name=f"m{k}")
    s.output(value, [16, 32])
    model = s.model()
    return model, samples(model)


def test_the_unit_that_drowns_the_output_goes() -> None:
    model, feeds = _chain()
    context = _context(model, feeds)
    before = to_bytes(model)
    result = RelaxQuantization().run(model, context)
    assert [r.node for r in result.rejects] == ["m2"]
    assert result.rejects[0].reason == (
        "output 'm3_out' is too noisy, and int8 here adds most to it"
    )
    assert context.plan is not None
    assert [u.nodes[0] for u in context.plan.units] == ["m0", "m1", "m3"]
    assert to_bytes(model) == before


def test_clear_outputs_cost_no_unit() -> None:
    model = residual_block()
    context = _context(model, samples(model))
    plan = context.plan
    assert RelaxQuantization().run(model, context).rejects == []
    assert context.plan is plan


def test_no_more_units_go_than_allowed() -> None:
    model = residual_block()
    context = _context(model, samples(model))
    greedy = RelaxOptions(least_sqnr_db=300.0, most=0.5)
    assert len(RelaxQuantization(greedy).run(model, context).rejects) == 2
    assert context.plan is not None
    assert len(context.plan.units) == 2


def test_the_last_unit_stays() -> None:
    s = Sketch()
    s.output(s.op("MatMul", s.input("x", [16, 32]), s.weight("w", 32, 32), name="m"), [16, 32])
    model = s.model()
    context = _context(model, samples(model))
    strict = RelaxQuantization(RelaxOptions(least_sqnr_db=300.0, most=1.0))
    assert strict.run(model, context).rejects == []


def test_candidates_are_the_noisiest_by_their_own_figures() -> None:
    model, feeds = _chain()
    context = _context(model, feeds)
    assert context.ranges is not None
    figures = {"m0_out": 1.0, "m1_out": 50.0, "m2_out": 50.0, "m3_out": 50.0}
    context.ranges = replace(context.ranges, unit_sqnr_db=figures)
    one = RelaxQuantization(RelaxOptions(candidates=1))
    assert [r.node for r in one.run(model, context).rejects] == ["m0"]


def test_without_samples_or_ranges_nothing_is_dropped() -> None:
    model, feeds = _chain()
    context = _context(model, feeds)
    context.feeds = []
    assert RelaxQuantization().run(model, context).rejects == []
    context.feeds, context.ranges = feeds, None
    assert RelaxQuantization().run(model, context).rejects == []


def test_feeds_are_taken_up_to_the_wanted_rows() -> None:
    feeds = [{"x": np.zeros((4, 2))} for _ in range(5)]
    assert len(some_feeds(iter(feeds), 8)) == 2
    assert len(some_feeds(iter([{"x": np.zeros(())}] * 9), 3)) == 3
