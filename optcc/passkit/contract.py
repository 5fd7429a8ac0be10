"""What a pass is, what it promises, and what it may ask for.

A pass changes a graph. Everything it needs beyond the graph (runs, samples, ranges) it asks of its
`PassContext`, so that no pass imports a runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from optcc.passkit.qtypes import QuantPlan, RangeTable

__all__ = [
    "Exactness",
    "Fact",
    "Feed",
    "Pass",
    "PassContext",
    "PassResult",
    "Rejection",
    "Rewrite",
]

Feed = dict[str, np.ndarray]
"""One complete set of model inputs (or outputs) by name."""


class Exactness(Enum):
    """What a pass promises about the numbers; the runner checks it."""

    BITWISE = "bitwise"
    ROUNDING = "rounding"
    LOSSY = "lossy"


class Fact(Enum):
    """What a pass may rely on, give or break."""

    CANONICAL = "canonical"
    SHAPES = "shapes"
    PLACED = "placed"
    RANGES = "ranges"
    QUANTIZED = "quantized"


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """One change of the graph, with the cut that bounds it.

    Attributes:
        node: Name of the node that the rewrite is known by (its root). Stable across runs.
        what: One plain sentence: what became what.
        inputs: Values that flow into the region and are not constants.
        outputs: Values that the region produces, as they are before the change.
    """

    node: str
    what: str
    inputs: tuple[ir.Value, ...] = ()
    outputs: tuple[ir.Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A match that was refused, and why."""

    node: str
    reason: str


@dataclass(slots=True)
class PassResult:
    """What one run of a pass did."""

    rewrites: list[Rewrite] = field(default_factory=list)
    rejects: list[Rejection] = field(default_factory=list)

    @property
    def modified(self) -> bool:
        """Whether the graph changed."""
        return bool(self.rewrites)


class PassContext(Protocol):
    """What the runner gives a pass. `passkit.testing.bare_context()` makes one for tests.

    Attributes:
        rng: Seeded generator; the only source of randomness a pass may use.
        fold_limit_bytes: No folded constant may be larger than its inputs plus this.
        plan: Quantization decisions so far; None before `quantize.place`.
        ranges: Activation ranges; None before calibration.
        cpu_class: "vnni" or "avx2": which int8 kernels the ONNX Runtime artifact is meant for.
    """

    rng: np.random.Generator
    fold_limit_bytes: int
    plan: QuantPlan | None
    ranges: RangeTable | None
    cpu_class: str

    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        """Run `action` and check the region that `rewrite` bounds.

        `action` changes the graph and returns, aligned with `rewrite.outputs`, the values that
        now stand for them (the same objects when they survive). The context cuts the region out
        before and after, and compares the two on seeded probes as the running pass promised.

        Returns:
            False when the rewrite was rolled back earlier and is to be left out; `action` was then
            not called and the pass must not record the rewrite.
        """
        ...

    def run(self, model: ir.Model, feeds: Feed, values: Sequence[str]) -> Feed:
        """Run `model` in the reference runtime and return the named values."""
        ...

    def run_all(self, model: ir.Model, feeds: Sequence[Feed], values: Sequence[str]) -> list[Feed]:
        """Run `model` on each of `feeds`, opened once, and return the named values."""
        ...

    def evaluate(self, node: ir.Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Run one node on constant inputs in the reference runtime (used by constant folding)."""
        ...

    def samples(self) -> Iterator[Feed]:
        """Iterate the calibration feeds; empty when there are none."""
        ...

    def emit(self, event: str, **facts: object) -> None:
        """Record a trace event (JSON values only, no times)."""
        ...


@runtime_checkable
class Pass(Protocol):
    """A transformation. Constructed with its own options, so a test builds it in one line."""

    name: str
    exactness: Exactness
    needs: frozenset[Fact]
    gives: frozenset[Fact]
    breaks: frozenset[Fact]

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Change `model` in place."""
        ...


Options = Mapping[str, object]
