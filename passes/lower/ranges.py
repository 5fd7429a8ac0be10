"""From calibrated ranges to one grid per value of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from optcc.errors import ConfigError
from optcc.passkit.contract import PassContext
from optcc.passkit.qtypes import ActivationRange, QuantPlan, QuantUnit, RangeTable
from passes.quantize.grid import Grid, join

__all__ = ["calibrated", "grids_of", "missing_range"]


def calibrated(ctx: PassContext, name: str) -> tuple[QuantPlan, RangeTable]:
    """Return the plan and the ranges that a spelling needs.

    Raises:
        ConfigError: Placement or calibration did not run.
    """
    if ctx.plan is None:
        raise ConfigError(f"{name} needs a quantization plan", hint="run quantize.place before it")
    if ctx.ranges is None:
        raise ConfigError(f"{name} needs activation ranges", hint="give --calib or --ranges")
    return ctx.plan, ctx.ranges


def grids_of(
    names: Iterable[str],
    ranges: Mapping[str, ActivationRange],
    groups: Iterable[tuple[str, ...]],
    to_grid: Callable[[ActivationRange], Grid],
) -> dict[str, Grid]:
    """Return the grid of each name that has a range; the members of a group get a common one."""
    known = {n: ranges[n] for n in names if n in ranges}
    for group in groups:
        members = [n for n in group if n in known]
        common = join([known[n] for n in members]) if members else None
        known.update({n: common for n in members if common is not None})
    return {n: to_grid(r) for n, r in known.items()}


def missing_range(unit: QuantUnit, values: Iterable[str], grids: Mapping[str, Grid]) -> str | None:
    """Return why `unit` cannot be spelled, or None when each of `values` has a grid."""
    absent = next((n for n in values if n not in grids), None)
    return None if absent is None else f"no calibrated range for {absent!r}"
