"""Leave further layers in float when the outputs of the whole model are too noisy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from optcc.passkit.contract import Exactness, Fact, Feed, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import QuantPlan, QuantUnit, RangeTable
from passes.lower.onnxruntime import spelled_unsigned
from passes.lower.tensorrt import spelled_signed
from passes.quantize.noise import noise_shares
from passes.quantize.planning import without_units

__all__ = ["RelaxOptions", "RelaxQuantization", "some_feeds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxOptions:
    """When, and with how much work, units are given up.

    Attributes:
        most: Share of the units that may be given up; more would leave too little in int8.
        least_sqnr_db: What each output of the model must keep, in both spellings.
        candidates: Units that may be given up: those of the least SQNR of their own.
        rounds: Times that the rest is measured again as a whole.
        rows: Samples that the model is judged on.
        trial_rows: Samples that each candidate is tried on, alone.
    """

    most: float = 0.34
    least_sqnr_db: float = 21.0
    candidates: int = 48
    rounds: int = 5
    rows: int = 12
    trial_rows: int = 4


class RelaxQuantization:
    """Drop units from `ctx.plan` until every output of the model is clear enough.

    Nothing happens where it is clear already. Otherwise each candidate runs alone in int8, and
    since the noise of units adds up, those that give the most to the outputs in need go first.

    Keeps: every byte of the graph, and at least one unit.
    """

    name = "quantize.relax"
    exactness = Exactness.BITWISE
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    gives: ClassVar[frozenset[Fact]] = frozenset()
    breaks: ClassVar[frozenset[Fact]] = frozenset()

    def __init__(self, options: RelaxOptions | None = None) -> None:
        self.options = options or RelaxOptions()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Judge the model, and drop what drowns its outputs."""
        if ctx.plan is None or ctx.ranges is None or len(_weighted(ctx.plan)) < 2:
            return PassResult()
        feeds = some_feeds(ctx.samples(), self.options.rows)
        if not feeds:
            return PassResult()
        judge = _Judge(model, ctx, ctx.ranges, feeds)
        noise = judge.worst(ctx.plan)
        limit = 10 ** (-self.options.least_sqnr_db / 10)
        if all(share <= limit for share in noise.values()):
            return PassResult()
        dropped = self._dropped(judge, ctx.plan, noise, limit)
        ctx.plan = without_units(model.graph, ctx.plan, dropped)
        return PassResult(rejects=[Rejection(node, why) for node, why in dropped.items()])

    def _dropped(
        self, judge: _Judge, plan: QuantPlan, noise: Mapping[str, float], limit: float
    ) -> dict[str, str]:
        shares = judge.shares_of(self._candidates(plan, judge.ranges), self.options.trial_rows)
        most = max(1, int(len(_weighted(plan)) * self.options.most))
        dropped: dict[str, str] = {}
        for _ in range(self.options.rounds):
            left = {n: s for n, s in shares.items() if n not in dropped}
            more = _loudest(left, noise, limit, most - len(dropped))
            if not more:
                break
            dropped |= more
            noise = judge.worst(without_units(judge.model.graph, plan, dropped))
        return dropped

    def _candidates(self, plan: QuantPlan, ranges: RangeTable) -> list[QuantUnit]:
        units = _weighted(plan)
        figures = ranges.unit_sqnr_db
        first = sorted(units, key=lambda u: figures.get(u.output, 0.0))[: self.options.candidates]
        return [u for u in units if u in first]


def some_feeds(samples: Iterator[Feed], rows: int) -> list[Feed]:
    """Return the first feeds that hold about `rows` samples; at most `rows` feeds."""
    found, held = [], 0
    for feed in itertools.islice(samples, rows):
        found.append(feed)
        held += max((len(a) for a in feed.values() if a.ndim), default=1)
        if held >= rows:
            break
    return found


def _weighted(plan: QuantPlan) -> list[QuantUnit]:
    return [u for u in plan.units if u.weight is not None]


@dataclass(slots=True)
class _Judge:
    """Measures the noise on the outputs of a model under a plan."""

    model: ir.Model
    ctx: PassContext
    ranges: RangeTable
    feeds: Sequence[Feed]
    _exact: list[Feed] = field(default_factory=list)

    def worst(self, plan: QuantPlan) -> dict[str, float]:
        """Return per output the share of noise, in the noisier of the spellings."""
        signed = self._shares(spelled_signed(self.model, plan, self.ranges), self.feeds)
        cpu_class = self.ctx.cpu_class
        spelled = spelled_unsigned(self.model, plan, self.ranges, cpu_class)
        unsigned = self._shares(spelled, self.feeds)
        return {n: max(s, unsigned.get(n, 0.0)) for n, s in signed.items()}

    def shares_of(self, units: Sequence[QuantUnit], rows: int) -> dict[str, Mapping[str, float]]:
        """Return per unit what it alone does to the outputs, with the nearest integers.

        What rounding and bias correction mend is left out: it hides which layers are in need.
        """
        feeds = some_feeds(iter(self.feeds), rows)
        return {
            unit.nodes[0]: self._shares(
                spelled_signed(self.model, QuantPlan(units=[unit]), self.ranges), feeds
            )
            for unit in units
        }

    def _shares(self, spelled: ir.Model, feeds: Sequence[Feed]) -> Mapping[str, float]:
        names = [v.name or "" for v in self.model.graph.outputs]
        if not self._exact:
            self._exact = self.ctx.run_all(self.model, self.feeds, names)
        got = self.ctx.run_all(spelled, feeds, names)
        return noise_shares(self._exact[: len(feeds)], got)


def _loudest(
    shares: Mapping[str, Mapping[str, float]],
    noise: Mapping[str, float],
    limit: float,
    most: int,
) -> dict[str, str]:
    """Return units, the loudest first, without which the outputs should be clear; and why.

    What the outputs are expected to keep of their noise is the part that the other units make when
    each runs alone: on few samples, and added up, their figures are right in proportion only.
    """
    rest = dict(shares)
    chosen: dict[str, str] = {}
    while len(chosen) < most:
        in_need = {n: e for n, e in _expected(shares, rest, noise).items() if e > limit}
        loudness = {
            u: sum(own.get(n, 0.0) * w for n, w in in_need.items()) for u, own in rest.items()
        }
        node = max(loudness, key=loudness.__getitem__, default="")
        if not node or loudness[node] <= 0:
            break
        worst = max(in_need, key=in_need.__getitem__)
        chosen[node] = f"output {worst!r} is too noisy, and int8 here adds most to it"
        del rest[node]
    return chosen


def _expected(
    shares: Mapping[str, Mapping[str, float]],
    rest: Mapping[str, Mapping[str, float]],
    noise: Mapping[str, float],
) -> dict[str, float]:
    expected = {}
    for name, share in noise.items():
        everything = sum(own.get(name, 0.0) for own in shares.values())
        left = sum(own.get(name, 0.0) for own in rest.values())
        expected[name] = share * left / everything if everything > 0 else share
    return expected
