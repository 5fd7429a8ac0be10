"""Unsigned grids for ONNX Runtime: ranges end where an activation clips."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.passkit.qtypes import ActivationRange, QuantPlan
from passes.lower.ranges import grids_of
from passes.quantize.grid import Grid, unsigned_grid
from passes.quantize.narrow import PASS_THROUGH, Scales

__all__ = ["bounds_of", "unsigned_grids"]

_INFINITE = (-np.inf, np.inf)


def bounds_of(node: ir.Node) -> tuple[float, float]:
    """Return what the results of `node` are clipped to; infinite for an operator that clips not."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip":
        return _INFINITE
    return _bound(node, 1, -np.inf), _bound(node, 2, np.inf)


def _bound(node: ir.Node, index: int, default: float) -> float:
    array = constant_of(node.inputs[index]) if len(node.inputs) > index else None
    return default if array is None else float(array.reshape(-1)[0])


def unsigned_grids(
    graph: ir.Graph, plan: QuantPlan, ranges: Mapping[str, ActivationRange]
) -> dict[str, Grid]:
    """Return the uint8 grid of each value of `plan` that has a range.

    Concat needs no common grid here: its int8 kernel requantizes. The other operators that hand
    values on keep one grid on both sides.
    """
    producers = {v.name: n for n in graph for v in n.outputs}
    clipped = {n: _clip(r, producers.get(n)) for n, r in ranges.items()}
    operators = {n.name or "": n.op_type for n in graph}
    scales = Scales()
    for unit in (*plan.units, *plan.cpu_units):
        kind = operators.get(unit.nodes[0], "")
        if unit.weight is None and kind in PASS_THROUGH and kind != "Concat":
            scales.join((*unit.activations, unit.output))
    return grids_of(plan.observed(), clipped, scales.groups(), unsigned_grid)


def _clip(interval: ActivationRange, producer: ir.Node | None) -> ActivationRange:
    """Cut a range that was widened (by a group, or by hand) back to what the producer can give."""
    least, most = _INFINITE if producer is None else bounds_of(producer)
    low, high = max(interval.low, min(least, 0.0)), min(interval.high, max(most, 0.0))
    return ActivationRange(low=min(low, 0.0), high=max(high, 0.0), method=interval.method)
