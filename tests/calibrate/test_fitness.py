"""Units that no range makes good enough are left in float, with the figure as the reason."""

from __future__ import annotations

import numpy as np

from optcc.calibrate.choose import choose_ranges
from optcc.calibrate.collector import collect
from optcc.calibrate.dataset import from_feeds
from optcc.calibrate.fitness import LEAST_SQNR_DB, fitting_plan
from optcc.config.request import Calibrator
from optcc.graph.signature import signature_of
from optcc.passkit.qtypes import NodeDecision, QuantPlan, RangeTable
from optcc.progress import Silent
from tests.models.residual import residual, residual_plan, residual_samples


def plan() -> QuantPlan:
    planned = residual_plan()
    nodes = [n for u in planned.units for n in u.nodes]
    planned.decisions = [NodeDecision(node=n, op_type="?", wanted="int8") for n in nodes]
    return planned


def test_sound_units_stay_and_untried_ones_too():
    planned = plan()
    assert fitting_plan(planned, RangeTable({}, {}, {"r1": 30.0})) is planned


def test_an_unfit_unit_goes_with_its_decisions_and_a_reason():
    planned = plan()
    kept = fitting_plan(planned, RangeTable({}, {}, {"r1": 30.0, "r2": 7.25, "p": 1.0}))
    assert [u.output for u in kept.units] == ["r1", "p", "f", "y"]
    wide = {d.node: d.reason for d in kept.decisions if d.wanted == "fp32"}
    assert sorted(wide) == ["body", "sum", "sum_relu"]
    assert wide["body"] == "int8 leaves 7.2 dB of its output, 15 dB are needed"
    assert kept.shared_scale == planned.shared_scale
    assert len(planned.units) == 5


def test_the_figure_is_measured_on_the_unit():
    """The channel that carries the answer is drowned by one that is 3000 times larger."""
    model, planned = residual(), plan()
    images = residual_samples(32)
    good = choose(model, planned, images)
    assert min(good.unit_sqnr_db[n] for n in ("r1", "r2", "y")) > 25
    images[:, 0] = 3000 * np.sign(images[:, 0])
    weight = model.graph.initializers["w1"].const_value.numpy().copy()
    weight[:, 0] /= 3000
    model = residual()
    model.graph.initializers["w1"].const_value = type(model.graph.initializers["w1"].const_value)(
        weight, name="w1"
    )
    bad = choose(model, planned, images)
    assert bad.unit_sqnr_db["r1"] < LEAST_SQNR_DB
    assert "r1" not in [u.output for u in fitting_plan(planned, bad).units]


def choose(model, planned, images) -> RangeTable:
    feeds = [{"x": images[k : k + 8]} for k in range(0, len(images), 8)]
    data = from_feeds(feeds, signature_of(model))
    seen = collect(model, planned.observed(), data, Silent())
    return choose_ranges(model, planned, seen, data, Calibrator.AUTO)
