"""The choice of ranges: least output error per value, shared scales, both grids."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from optcc.calibrate import trial
from optcc.calibrate.choose import choose_ranges, slots_of
from optcc.calibrate.collector import collect
from optcc.calibrate.dataset import Dataset, from_feeds
from optcc.calibrate.observers import Scheme, observer_for
from optcc.calibrate.trial import UnitErrors, try_proposals
from optcc.calibrate.unit_model import UnitModel
from optcc.config.request import Calibrator
from optcc.graph.io import to_bytes
from optcc.graph.signature import signature_of
from optcc.passkit.qtypes import PerTensor, QuantPlan, QuantUnit, RangeTable
from optcc.progress import Silent
from tests.models.residual import residual, residual_plan, residual_samples

FIXED = [m for m in Calibrator if m is not Calibrator.AUTO]


def dataset(model: ir.Model, images: np.ndarray, size: int = 8) -> Dataset:
    parts = [images[k : k + size] for k in range(0, len(images), size)]
    return from_feeds([{"x": p} for p in parts], signature_of(model))


def ranges(
    plan: QuantPlan,
    method: Calibrator,
    images: np.ndarray | None = None,
    model: ir.Model | None = None,
    **options: int,
) -> RangeTable:
    model = residual() if model is None else model
    data = dataset(model, residual_samples(48) if images is None else images)
    seen = collect(model, plan.observed(), data, Silent())
    return choose_ranges(model, plan, seen, data, method, **options)


def both(table: RangeTable) -> dict[Scheme, dict]:
    return {Scheme.SIGNED: dict(table.signed), Scheme.UNSIGNED: dict(table.unsigned)}


def total(found: list[UnitErrors], scheme: Scheme, name: str) -> np.ndarray:
    return np.sum([u.errors[scheme, name] for u in found if (scheme, name) in u.errors], axis=0)


@pytest.mark.parametrize("method", FIXED)
def test_a_fixed_method_is_used_for_every_value(method):
    plan = residual_plan()
    for table in both(ranges(plan, method)).values():
        assert list(table) == list(plan.observed())
        assert {r.method for r in table.values()} == {method.value}


@pytest.mark.parametrize("method", list(Calibrator))
def test_values_of_one_group_have_one_range_that_covers_the_members(method):
    for table in both(ranges(residual_plan(), method)).values():
        assert table["r2"] == table["p"] == table["f"]


def test_groups_that_share_a_value_are_joined():
    plan = QuantPlan(shared_scale=[("d", "a"), ("c", "e"), ("a", "b"), ("e", "e")])
    assert slots_of(plan) == [("a", "b", "d"), ("c", "e")]


def test_a_group_covers_all_of_its_members_with_minmax():
    model, plan = residual(), residual_plan()
    plan.shared_scale.append(("x", "y"))
    data = dataset(model, residual_samples(16))
    seen = collect(model, plan.observed(), data, Silent()).values
    table = ranges(plan, Calibrator.MINMAX, residual_samples(16))
    assert table.signed["x"] == table.signed["y"]
    assert table.signed["x"].low == min(seen["x"].low, seen["y"].low)
    assert table.signed["x"].high == max(seen["x"].high, seen["y"].high)


def test_auto_takes_the_least_output_error_of_the_readers():
    model, plan = residual(), residual_plan()
    data = dataset(model, residual_samples(48))
    seen = collect(model, plan.observed(), data, Silent())
    auto = both(choose_ranges(model, plan, seen, data, Calibrator.AUTO))
    fixed = {m: both(choose_ranges(model, plan, seen, data, m)) for m in FIXED}
    for scheme in Scheme:
        for name in ("x", "r1"):
            options = [auto[scheme][name], *(fixed[m][scheme][name] for m in FIXED)]
            tried = {s: {n: [r] for n, r in auto[s].items()} for s in Scheme}
            tried[scheme][name] = options
            errors = total(try_proposals(model, plan, tried, seen, data, 1 << 30), scheme, name)
            assert errors[0] == errors.min()
            assert errors.max() > errors.min()


def test_auto_clips_what_carries_little_weight():
    """One value in a thousand is 40 times the others: keeping it costs every other value."""
    images = residual_samples(48)
    images[::7, 0, 3, 3] = 200
    table = ranges(residual_plan(), Calibrator.MINMAX, images)
    model = residual()
    model.graph.initializers["w1"].const_value = ir.tensor(
        model.graph.initializers["w1"].const_value.numpy()
        * np.array([1e-4, 1, 1], np.float32)[:, None, None],
        name="w1",
    )
    chosen = ranges(residual_plan(), Calibrator.AUTO, images, model)
    assert table.signed["x"].high == 200
    assert chosen.signed["x"].high < 50


def test_what_the_tried_samples_lack_still_counts():
    """One sample in a hundred, which is not among those tried, is far above the others."""
    images = residual_samples(100) / 6
    rare = images.copy()
    rare[84] *= 100
    common = ranges(residual_plan(), Calibrator.AUTO, images).signed["x"]
    spared = ranges(residual_plan(), Calibrator.AUTO, rare).signed["x"]
    assert spared.high > 10 * common.high


def test_the_two_grids_choose_apart():
    table = ranges(residual_plan(), Calibrator.AUTO)
    apart = [n for n in table.signed if table.signed[n] != table.unsigned[n]]
    assert apart
    assert table.unsigned["r1"].low == 0


def test_a_value_that_no_unit_reads_keeps_all_at_an_output_and_least_error_inside():
    plan, data = residual_plan(), dataset(residual(), residual_samples(48))
    assert ranges(plan, Calibrator.AUTO).signed["y"].method == "minmax"
    seen = collect(residual(), ("r1",), data, Silent()).values["r1"]
    best = observer_for(Calibrator.MSE).choose(seen, Scheme.SIGNED)
    assert best.high < seen.high
    stem_alone = ranges(QuantPlan(units=plan.units[:1]), Calibrator.AUTO)
    assert stem_alone.signed["r1"] == best


def test_units_of_one_spelling_decide_that_spelling_only():
    plan = residual_plan()
    moved = QuantPlan(units=plan.units[:1], cpu_units=plan.units[1:], shared_scale=[])
    model = residual()
    data = dataset(model, residual_samples(24))
    seen = collect(model, moved.observed(), data, Silent())
    options = {
        s: {n: [observer_for(m).choose(seen.values[n], s) for m in FIXED] for n in moved.observed()}
        for s in Scheme
    }
    tried = [r for u in try_proposals(model, moved, options, seen, data, 1 << 30) for r in u.errors]
    assert {n for s, n in tried if s is Scheme.SIGNED} == {"x"}
    assert {n for s, n in tried if s is Scheme.UNSIGNED} == {"x", "r1", "r2", "p", "f"}


def test_the_choice_is_the_same_each_time_and_within_any_budget():
    wide = ranges(residual_plan(), Calibrator.AUTO)
    assert wide == ranges(residual_plan(), Calibrator.AUTO)
    assert list(wide.signed) == sorted(wide.signed)
    narrow = ranges(residual_plan(), Calibrator.AUTO, budget_bytes=30_000)
    assert list(narrow.signed) == list(wide.signed)


def test_groups_of_trials_fit_the_budget(monkeypatch):
    groups = []
    plain = trial._fetched

    def fetched(model, group, few):
        feeds = plain(model, group, few)
        groups.append(sum(a.nbytes for f in feeds for a in f.values()))
        return feeds

    monkeypatch.setattr(trial, "_fetched", fetched)
    ranges(residual_plan(), Calibrator.AUTO, budget_bytes=60_000)
    assert len(groups) > 1
    assert max(groups) <= 60_000


def test_dead_values_have_the_empty_range():
    model = residual()
    weight = -np.abs(model.graph.initializers["w1"].const_value.numpy())
    model.graph.initializers["w1"].const_value = ir.tensor(weight, name="w1")
    images = np.abs(residual_samples(24))
    table = ranges(residual_plan(), Calibrator.AUTO, images, model)
    assert (table.signed["r1"].low, table.signed["r1"].high) == (0.0, 0.0)


def test_the_unit_model_runs_with_either_weight_and_leaves_the_model_alone():
    model = residual()
    before = to_bytes(model)
    unit = residual_plan().units[1]
    nodes = [n for n in model.graph if n.name in unit.nodes]
    feed = {"r1": np.abs(residual_samples(2).repeat(3, axis=1)[:, :8])}
    small = UnitModel(model, nodes, unit, feed)
    assert small.entering == ("r1",)
    exact, rounded = (small.run(feed, rounded=r) for r in (False, True))
    error = np.abs(exact - rounded).max() / np.abs(exact).max()
    assert 1e-4 < error < 0.05
    coarse = UnitModel(model, nodes, dataclasses.replace(unit, granularity=PerTensor()), feed)
    assert np.abs(coarse.run(feed, rounded=True) - exact).max() > 0
    assert to_bytes(model) == before


def test_units_without_weights_and_with_two_inputs_are_tried():
    model = residual()
    plan = QuantPlan(
        units=[QuantUnit(nodes=("sum", "sum_relu"), activations=("c2", "r1"), output="r2")]
    )
    table = ranges(plan, Calibrator.AUTO, model=model)
    assert set(table.signed) == {"c2", "r1", "r2"}
