"""What each spelling does to the layers, for passes that look at both before either is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from optcc.passkit.qtypes import QuantPlan, QuantUnit, RangeTable
from passes.lower.cpu_ranges import unsigned_grids
from passes.lower.ranges import grids_of
from passes.lower.tensorrt import is_read_narrow
from passes.quantize.grid import Grid, signed_grid

__all__ = ["SPELLINGS", "SpellingRules", "spelling_rules"]

SPELLINGS = ("signed", "unsigned")
_QMAX = {"vnni": 127, "avx2": 64}


@dataclass(frozen=True, slots=True)
class SpellingRules:
    """What one spelling does to the units.

    Attributes:
        spelling: Which one.
        grids: Of the activations.
        qmax: Of the weights.
        all_safe: Keep pairs of products safe everywhere, not only where the data is read narrow.
    """

    spelling: str
    grids: Mapping[str, Grid]
    qmax: int
    all_safe: bool

    def safe_pairs(self, unit: QuantUnit, plan: QuantPlan) -> bool:
        """Tell whether sums of neighbouring products of `unit` must stay within 16 bits."""
        return self.all_safe or is_read_narrow(unit, plan)


def spelling_rules(
    graph: ir.Graph, plan: QuantPlan, ranges: RangeTable, cpu_class: str
) -> dict[str, SpellingRules]:
    """Return the rules of each spelling."""
    signed = grids_of(plan.observed(), ranges.signed, plan.shared_scale, signed_grid)
    unsigned = unsigned_grids(graph, plan, ranges.unsigned)
    return {
        "signed": SpellingRules("signed", signed, _QMAX["vnni"], all_safe=False),
        "unsigned": SpellingRules("unsigned", unsigned, _QMAX[cpu_class], all_safe=True),
    }
