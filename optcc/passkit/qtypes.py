"""Quantization as data: granularities, ranges, and the plan that says what runs narrow and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "ActivationRange",
    "NodeDecision",
    "PerAxis",
    "PerTensor",
    "QuantPlan",
    "QuantUnit",
    "RangeTable",
    "Rounding",
]


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for the whole tensor."""


@dataclass(frozen=True, slots=True)
class PerAxis:
    """One scale per index of `axis`."""

    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRange:
    """The interval of real values that the integer grid covers.

    Attributes:
        low: Smallest value kept; at most 0.
        high: Largest value kept; at least 0.
        method: The observer that gave it: minmax, percentile, entropy, mse.
    """

    low: float
    high: float
    method: str


@dataclass(frozen=True, slots=True)
class RangeTable:
    """Activation ranges by value name, one table per scheme.

    The best clipping differs between the signed symmetric grid and the unsigned grid, so each
    value may carry both.

    Attributes:
        signed: Ranges chosen for symmetric int8 (TensorRT's spelling).
        unsigned: Ranges chosen for uint8 (ONNX Runtime's spelling).
        unit_sqnr_db: By the output of each unit that was tried, what rounding to the chosen ranges
            leaves of it on the worse of the grids; empty when nothing was tried.
    """

    signed: Mapping[str, ActivationRange]
    unsigned: Mapping[str, ActivationRange]
    unit_sqnr_db: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantUnit:
    """Nodes that are quantized together with no Q/DQ between them: Conv + Relu, Gemm, ...

    Attributes:
        nodes: Node names in order; the first is the weighted node (Conv, ConvTranspose, MatMul,
            Gemm) or the elementwise/pooling node that passes narrow data through.
        activations: Names of the float values that enter the unit and get Q/DQ.
        output: Name of the float value that leaves the unit.
        inner: Names of values inside the unit that a runtime without the fused kernel must make
            narrow too (the Conv result before a residual Add); no Q/DQ in TensorRT's spelling.
        weight: Name of the weight initializer, or None.
        granularity: Of the weight.
    """

    nodes: tuple[str, ...]
    activations: tuple[str, ...]
    output: str
    inner: tuple[str, ...] = ()
    weight: str | None = None
    granularity: PerTensor | PerAxis = PerTensor()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision:
    """What a node was planned to run in, and why.

    Attributes:
        wanted: "int8", "fp16" or "fp32".
        reason: Why it is not narrow; empty when it is.
    """

    node: str
    op_type: str
    wanted: str
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """The integers of one weight, where they are not simply the nearest ones.

    Attributes:
        data: int8, same shape as the weight.
        scale: float32, one per output channel, all positive.
    """

    data: np.ndarray
    scale: np.ndarray


@dataclass(slots=True)
class QuantPlan:
    """Decisions for one model. Made by `quantize.place`, read by the spellings and the report.

    Attributes:
        units: In graph order.
        decisions: One per compute node, in graph order.
        shared_scale: Groups of value names that must carry one scale (Concat inputs and output).
        cpu_units: Units that only ONNX Runtime has int8 kernels for (average pooling, Add); they
            stay float in TensorRT's spelling and in `decisions`.
        bias_shifts: By spelling ("signed", "unsigned") and weighted node, what is to be added to
            its bias per output channel, so that its mean error vanishes.
        roundings: By spelling and weighted node, the integers of its weight; the nearest ones where
            there are none.
    """

    units: list[QuantUnit] = field(default_factory=list)
    decisions: list[NodeDecision] = field(default_factory=list)
    shared_scale: list[tuple[str, ...]] = field(default_factory=list)
    cpu_units: list[QuantUnit] = field(default_factory=list)
    bias_shifts: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    roundings: Mapping[str, Mapping[str, Rounding]] = field(default_factory=dict)

    def observed(self) -> tuple[str, ...]:
        """Return the names of all values whose range calibration must give, sorted."""
        units = (*self.units, *self.cpu_units)
        names = {n for u in units for n in (*u.activations, *u.inner, u.output)}
        names.update(n for group in self.shared_scale for n in group)
        return tuple(sorted(names))
