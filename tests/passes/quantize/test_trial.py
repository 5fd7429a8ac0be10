from __future__ import annotations

import numpy as np
import pytest

from optcc.passkit.qtypes import ActivationRange
from optcc.passkit.testing import bare_context
from passes.quantize.grid import signed_grid
from passes.quantize.place import PlaceQuantization
from passes.quantize.trial import rounded, sqnr_db, unit_model
from tests.models.layers import residual_block, samples, values_of


def test_a_unit_runs_alone_close_to_its_float_result() -> None:
    model, context = residual_block(), bare_context()
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    unit = context.plan.units[2]
    by_name = {n.name: n for n in model.graph}
    small = unit_model(model.graph, [by_name[n] for n in unit.nodes], unit)
    assert [n.op_type for n in small.graph] == ["Conv", "Add", "Relu"]
    values = values_of(model, samples(model, 1)[0], [*unit.activations, unit.output])
    got = context.run(small, {n: values[n] for n in unit.activations}, [unit.output])
    level = sqnr_db(values[unit.output], got[unit.output])
    assert level is not None
    assert 30 < level < 80


def test_the_model_is_not_touched() -> None:
    model, context = residual_block(), bare_context()
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    before = [len(v.uses()) for n in model.graph for v in n.outputs]
    nodes = list(model.graph)[:2]
    unit_model(model.graph, nodes, context.plan.units[0])
    assert [len(v.uses()) for n in model.graph for v in n.outputs] == before


def test_rounding_saturates_at_the_ends() -> None:
    grid = signed_grid(ActivationRange(low=-1, high=1, method="minmax"))
    assert np.allclose(rounded(np.array([-5.0, 0.2, 5.0]), grid), [-128 / 127, 0.2, 1], atol=0.005)


@pytest.mark.parametrize("reference", [[], [0.0, 0.0], [2.0, 2.0], [1.0, np.nan]])
def test_a_reference_that_says_nothing_gives_no_level(reference: list[float]) -> None:
    assert sqnr_db(np.array(reference), np.zeros(len(reference))) is None


def test_levels_are_decibels() -> None:
    assert sqnr_db(np.array([10.0, 0.0]), np.array([9.0, 0.0])) == pytest.approx(20)
    assert sqnr_db(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == np.inf
