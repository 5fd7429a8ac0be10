from __future__ import annotations

import pytest

from optcc.errors import ConfigError
from optcc.passkit.qtypes import ActivationRange, QuantPlan, QuantUnit, RangeTable
from optcc.passkit.testing import bare_context
from passes.lower.ranges import calibrated, grids_of, missing_range
from passes.quantize.grid import signed_grid


def _range(high: float) -> ActivationRange:
    return ActivationRange(low=0.0, high=high, method="mse")


def test_a_group_gets_one_grid() -> None:
    ranges = {"a": _range(1), "b": _range(4), "c": _range(2)}
    grids = grids_of(("a", "b", "c"), ranges, [("a", "b", "gone")], signed_grid)
    assert grids["a"] == grids["b"] == signed_grid(_range(4))
    assert grids["c"] == signed_grid(_range(2))


def test_a_missing_range_is_named() -> None:
    unit = QuantUnit(nodes=("conv",), activations=("a", "b"), output="c")
    grids = {"a": signed_grid(_range(1))}
    assert missing_range(unit, unit.activations, grids) == "no calibrated range for 'b'"
    assert missing_range(unit, ("a",), grids) is None


def test_plan_and_ranges_are_needed() -> None:
    context = bare_context()
    with pytest.raises(ConfigError, match="needs a quantization plan"):
        calibrated(context, "lower.x")
    context.plan = QuantPlan()
    with pytest.raises(ConfigError, match="needs activation ranges"):
        calibrated(context, "lower.x")
    context.ranges = RangeTable({}, {})
    assert calibrated(context, "lower.x")[0] is context.plan
