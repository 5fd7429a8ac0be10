from __future__ import annotations

import numpy as np

from optcc.passkit.qtypes import QuantPlan, Rounding
from optcc.passkit.testing import bare_context
from passes.quantize.place import PlaceQuantization
from passes.quantize.planning import without_units
from tests.models.layers import attention, residual_block, token_layer


def _plan(model) -> QuantPlan:  # type: ignore[no-untyped-def]
    context = bare_context()
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    return context.plan


def test_dropping_nothing_changes_nothing() -> None:
    for model in (attention(), residual_block(), token_layer()):
        plan = _plan(model)
        assert without_units(model.graph, plan, {}) == plan


def test_refusals_from_before_keep_their_reasons() -> None:
    model = attention()
    plan = _plan(model)
    before = {d.node: d.reason for d in plan.decisions}
    after = {d.node: d.reason for d in without_units(model.graph, plan, {"q": "why"}).decisions}
    assert after == before | {"q": "why"}


def test_followers_of_a_unit_are_part_of_it() -> None:
    decided = {d.node: (d.wanted, d.reason) for d in _plan(token_layer()).decisions}
    assert decided["up"] == ("int8", "")
    assert decided["up_bias"] == decided["relu"] == ("fp32", "part of the int8 unit of 'up'")


def test_shifts_of_dropped_units_go_with_them() -> None:
    model = residual_block()
    plan = _plan(model)
    plan.bias_shifts = {"signed": {"stem": (1.0,), "head": (2.0,)}}
    own = Rounding(np.zeros((1, 1), np.int8), np.ones(1, np.float32))
    plan.roundings = {"signed": {"stem": own, "head": own}}
    fewer = without_units(model.graph, plan, {"head": "why"})
    assert fewer.bias_shifts == {"signed": {"stem": (1.0,)}}
    assert fewer.roundings == {"signed": {"stem": own}}
