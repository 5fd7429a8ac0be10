"""Leave units in float that no range makes good enough."""

from __future__ import annotations

import dataclasses

from optcc.passkit.qtypes import NodeDecision, QuantPlan, QuantUnit, RangeTable

__all__ = ["LEAST_SQNR_DB", "fitting_plan"]

LEAST_SQNR_DB = 15.0
"""Below it a unit alone costs more than a whole model may lose; sound units keep 20 to 45 dB."""


def fitting_plan(plan: QuantPlan, ranges: RangeTable) -> QuantPlan:
    """Return `plan` without the weighted units that lose too much even with their best ranges.

    Their nodes are decided for fp32, with the figure as the reason. Units that were not tried stay.
    """
    unfit = {
        u.output: ranges.unit_sqnr_db[u.output]
        for u in plan.units
        if u.weight is not None and ranges.unit_sqnr_db.get(u.output, LEAST_SQNR_DB) < LEAST_SQNR_DB
    }
    if not unfit:
        return plan
    figures = {n: unfit[u.output] for u in plan.units if u.output in unfit for n in u.nodes}
    return dataclasses.replace(
        plan,
        units=[u for u in plan.units if u.output not in unfit],
        decisions=[_decided(d, figures) for d in plan.decisions],
        shared_scale=list(plan.shared_scale),
        cpu_units=_without(plan.cpu_units, figures),
    )


def _decided(decision: NodeDecision, figures: dict[str, float]) -> NodeDecision:
    figure = figures.get(decision.node)
    if figure is None or decision.wanted != "int8":
        return decision
    reason = f"int8 leaves {figure:.1f} dB of its output, {LEAST_SQNR_DB:.0f} dB are needed"
    return dataclasses.replace(decision, wanted="fp32", reason=reason)


def _without(units: list[QuantUnit], figures: dict[str, float]) -> list[QuantUnit]:
    return [u for u in units if not any(n in figures for n in u.nodes)]
