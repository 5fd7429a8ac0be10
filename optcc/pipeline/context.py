"""The `PassContext` that the runner gives to passes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.config.shapes import ShapeProfile
from optcc.graph.signature import Signature
from optcc.passkit.contract import Feed, Rewrite
from optcc.passkit.qtypes import QuantPlan, RangeTable
from optcc.pipeline.ledger import Ledger
from optcc.runtime.single import evaluate_node
from optcc.verify.reference import open_model

__all__ = ["ContextState", "RunnerContext", "no_samples"]

Sink = Callable[[str, dict[str, object]], None]


def no_samples() -> Iterable[Feed]:
    """Return no samples."""
    return ()


def _drop(event: str, facts: dict[str, object]) -> None:
    """Drop a trace event."""


@dataclass(frozen=True, slots=True)
class ContextState:
    """What a roll-back of the model must roll back in the context as well."""

    plan: QuantPlan | None
    ranges: RangeTable | None
    events: int


@dataclass(slots=True)
class RunnerContext:
    """What passes may ask for; one for all stages of a compile.

    Attributes:
        signature: Of the original model; no pass may change it.
        profile: Shapes that the artifact is built for.
        seed: Every random number follows from it.
        sample_source: Gives a fresh iterable of calibration feeds at each call.
        sink: Receives trace events, once the stage that made them has held.
        rng: Made anew for each run of a pass, so that a replay sees the same numbers.
    """

    signature: Signature
    profile: ShapeProfile
    seed: int = 0
    cpu_class: str = "vnni"
    fold_limit_bytes: int = 1 << 20
    plan: QuantPlan | None = None
    ranges: RangeTable | None = None
    sample_source: Callable[[], Iterable[Feed]] = no_samples
    sink: Sink = _drop
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    ledger: Ledger = field(default_factory=Ledger)
    probes: tuple[Feed, ...] | None = None
    _events: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        """Run `action` and check the region; see `PassContext.apply`."""
        return self.ledger.apply(rewrite, action)

    def run(self, model: ir.Model, feeds: Feed, values: Sequence[str]) -> Feed:
        """Run `model` in the reference runtime; `values` may be inner values."""
        with open_model(model, also=values) as session:
            return session.run(feeds, values)

    def run_all(self, model: ir.Model, feeds: Sequence[Feed], values: Sequence[str]) -> list[Feed]:
        """Run `model` on each of `feeds`, opened once."""
        with open_model(model, also=values) as session:
            return [session.run(feed, values) for feed in feeds]

    def evaluate(self, node: ir.Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Run one node on constant inputs."""
        return evaluate_node(node, inputs)

    def samples(self) -> Iterator[Feed]:
        """Iterate the calibration feeds."""
        return iter(self.sample_source())

    def emit(self, event: str, **facts: object) -> None:
        """Record a trace event; it is dropped when the stage is rolled back."""
        self._events.append((event, facts))

    def save(self) -> ContextState:
        """Remember what a pass may change."""
        return ContextState(copy.deepcopy(self.plan), self.ranges, len(self._events))

    def restore(self, state: ContextState) -> None:
        """Go back to what `save` remembered."""
        self.plan, self.ranges = copy.deepcopy(state.plan), state.ranges
        del self._events[state.events :]

    def flush(self) -> None:
        """Hand the recorded events to the sink."""
        for event, facts in self._events:
            self.sink(event, facts)
        self._events.clear()
