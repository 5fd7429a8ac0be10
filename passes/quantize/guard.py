"""Leave a layer in float when int8 alone drowns its result in noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optcc.graph.shapes import static_dims
from optcc.passkit.contract import Exactness, Fact, Feed, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import NodeDecision, QuantPlan, QuantUnit, RangeTable
from passes.quantize.grid import Grid, signed_grid
from passes.quantize.trial import rounded, sqnr_db, unit_model

__all__ = ["GuardOptions", "GuardQuantization"]

_CHUNK_BYTES = 64 * 2**20
_UNKNOWN_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """When a unit is too noisy.

    Attributes:
        least_sqnr_db: Median over the samples that a unit must reach alone, with exact inputs.
        samples: Calibration feeds to try on.
        first_samples: Feeds after which a unit is done that reached `margin_db` more on each.
    """

    least_sqnr_db: float = 20.0
    samples: int = 8
    first_samples: int = 2
    margin_db: float = 8.0


class GuardQuantization:
    """Drop from `ctx.plan` each weighted unit whose own int8 error is too large.

    A unit is run alone: exact inputs rounded to their grid, the weight rounded to its own. Typical
    layers keep 25 to 45 dB; one that squares small signals or lives on one large channel keeps
    much less, and no calibration mends it. Without ranges or samples nothing is dropped.

    Keeps: every byte of the graph.
    """

    name = "quantize.guard"
    exactness = Exactness.BITWISE
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    gives: ClassVar[frozenset[Fact]] = frozenset()
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def __init__(self, options: GuardOptions | None = None) -> None:
        self.options = options or GuardOptions()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Try every weighted unit and drop the noisy ones."""
        if ctx.plan is None or ctx.ranges is None:
            return PassResult()
        feeds = list(itertools.islice(ctx.samples(), self.options.samples))
        noisy = self._noisy(model, ctx, feeds, ctx.plan, ctx.ranges)
        ctx.plan = _without(ctx.plan, noisy)
        return PassResult(rejects=[Rejection(node, why) for node, why in noisy.items()])

    def _noisy(
        self,
        model: ir.Model,
        ctx: PassContext,
        feeds: list[Feed],
        plan: QuantPlan,
        ranges: RangeTable,
    ) -> dict[str, str]:
        """Return the reason per weighted node that is to stay in float."""
        grids = {n: signed_grid(r) for n, r in ranges.signed.items()}
        units = [u for u in plan.units if u.weight and all(n in grids for n in u.activations)]
        first, rest = feeds[: self.options.first_samples], feeds[self.options.first_samples :]
        levels = _levels(model, ctx, first, units, grids)
        clear = self.options.least_sqnr_db + self.options.margin_db
        doubtful = [u for u in units if min(levels[u.nodes[0]], default=0.0) < clear]
        for node, more in _levels(model, ctx, rest, doubtful, grids).items():
            levels[node] += more
        least = self.options.least_sqnr_db
        medians = {n: float(np.median(found)) for n, found in levels.items() if found}
        return {n: _reason(m, least) for n, m in medians.items() if m < least}


def _reason(level: float, least: float) -> str:
    return f"int8 alone leaves {level:.1f} dB of its result, less than {least:g} dB"


class _Trial:
    """One unit with the model that runs it alone."""

    def __init__(self, graph: ir.Graph, unit: QuantUnit, grids: dict[str, Grid]) -> None:
        by_name = {n.name or "": n for n in graph}
        self.unit = unit
        self.model = unit_model(graph, [by_name[n] for n in unit.nodes], unit)
        self._grids = grids

    def inputs(self, values: Feed) -> Feed:
        """Return the exact inputs, rounded to their grids."""
        return {n: rounded(values[n], self._grids[n]) for n in self.unit.activations}


def _levels(
    model: ir.Model,
    ctx: PassContext,
    feeds: list[Feed],
    units: list[QuantUnit],
    grids: dict[str, Grid],
) -> dict[str, list[float]]:
    """Return per unit its SQNR in dB on each feed that says anything."""
    levels: dict[str, list[float]] = {u.nodes[0]: [] for u in units}
    for chunk in _chunks(model.graph, units) if feeds else ():
        trials = [_Trial(model.graph, u, grids) for u in chunk]
        for feed in feeds:
            for node, level in _run_trials(model, ctx, feed, trials):
                levels[node].append(level)
    return levels


def _run_trials(
    model: ir.Model, ctx: PassContext, feed: Feed, trials: list[_Trial]
) -> Iterator[tuple[str, float]]:
    names = dict.fromkeys(n for t in trials for n in (*t.unit.activations, t.unit.output))
    inner = [n for n in names if n not in feed]
    values = {**feed, **ctx.run(model, feed, inner)}
    for trial in trials:
        output = trial.unit.output
        got = ctx.run(trial.model, trial.inputs(values), [output])[output]
        level = sqnr_db(values[output], got)
        if level is not None:
            yield trial.unit.nodes[0], level


def _chunks(graph: ir.Graph, units: list[QuantUnit]) -> Iterator[list[QuantUnit]]:
    """Split `units` so that the values of one part fit into memory at a time."""
    sizes = {v.name or "": _bytes(v) for n in graph for v in n.outputs}
    part: list[QuantUnit] = []
    held = 0
    for unit in units:
        need = sum(sizes.get(n, 0) for n in (*unit.activations, unit.output))
        if part and held + need > _CHUNK_BYTES:
            yield part
            part, held = [], 0
        part.append(unit)
        held += need
    if part:
        yield part


def _bytes(value: ir.Value) -> int:
    dims = static_dims(value)
    return _UNKNOWN_BYTES if dims is None else 4 * math.prod(dims)


def _without(plan: QuantPlan, noisy: dict[str, str]) -> QuantPlan:
    gone = {n: noisy[u.nodes[0]] for u in plan.units if u.nodes[0] in noisy for n in u.nodes}
    return QuantPlan(
        units=[u for u in plan.units if u.nodes[0] not in noisy],
        decisions=[_as_float(d, gone.get(d.node)) for d in plan.decisions],
        shared_scale=plan.shared_scale,
        cpu_units=plan.cpu_units,
    )


def _as_float(decision: NodeDecision, reason: str | None) -> NodeDecision:
    return decision if reason is None else replace(decision, wanted="fp32", reason=reason)
