"""Leave a layer in float when int8 alone drowns its result in noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection
from optcc.passkit.qtypes import QuantPlan, RangeTable
from passes.quantize.planning import without_units

__all__ = ["GuardOptions", "GuardQuantization"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """When a unit is too noisy.

    Attributes:
        least_sqnr_db: What a unit must keep alone, with exact inputs and its chosen ranges.
    """

    least_sqnr_db: float = 20.0


class GuardQuantization:
    """Drop from `ctx.plan` each weighted unit whose own int8 error is too large.

    The figures are those of `ctx.ranges.unit_sqnr_db`: calibration tries every unit alone. Typical
    layers keep 25 to 45 dB; one that squares small signals or lives on one large channel keeps
    much less, and no range mends it. A unit that was not tried stays.

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
        """Drop the noisy units."""
        if ctx.plan is None or ctx.ranges is None:
            return PassResult()
        noisy = self._noisy(ctx.plan, ctx.ranges)
        if noisy:
            ctx.plan = without_units(model.graph, ctx.plan, noisy)
        return PassResult(rejects=[Rejection(node, why) for node, why in noisy.items()])

    def _noisy(self, plan: QuantPlan, ranges: RangeTable) -> dict[str, str]:
        """Return the reason per weighted node that is to stay in float."""
        least = self.options.least_sqnr_db
        tried = [u for u in plan.units if u.weight and u.output in ranges.unit_sqnr_db]
        levels = {u.nodes[0]: ranges.unit_sqnr_db[u.output] for u in tried}
        return {n: _reason(level, least) for n, level in levels.items() if level < least}


def _reason(level: float, least: float) -> str:
    return f"int8 alone leaves {level:.1f} dB of its result, less than {least:g} dB"
