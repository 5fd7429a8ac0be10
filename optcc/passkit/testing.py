"""What the author of a pass needs in a test: a context that applies without checking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed, Rewrite
from optcc.passkit.qtypes import QuantPlan, RangeTable
from optcc.runtime.session import Session

__all__ = ["BareContext", "bare_context"]


class BareContext:
    """A `PassContext` that applies every rewrite and records events, with no checks."""

    def __init__(self, feeds: Sequence[Feed] = ()) -> None:
        self.rng = np.random.default_rng(0)
        self.fold_limit_bytes = 1 << 20
        self.plan: QuantPlan | None = None
        self.ranges: RangeTable | None = None
        self.cpu_class = "vnni"
        self.feeds = list(feeds)
        self.events: list[tuple[str, dict[str, object]]] = []

    def apply(self, rewrite: Rewrite, action: Callable[[], Sequence[ir.Value]]) -> bool:
        """Run the action; nothing is compared."""
        action()
        return True

    def run(self, model: ir.Model, feeds: Feed, values: Sequence[str]) -> Feed:
        """Run in the reference runtime; `values` must be graph outputs."""
        return Session(to_bytes(model)).run(feeds, values)

    def run_all(self, model: ir.Model, feeds: Sequence[Feed], values: Sequence[str]) -> list[Feed]:
        """Run each of `feeds`; `values` must be graph outputs."""
        return [self.run(model, feed, values) for feed in feeds]

    def evaluate(self, node: ir.Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Run one node on constants."""
        from optcc.runtime.single import evaluate_node

        return evaluate_node(node, inputs)

    def samples(self) -> Iterator[Feed]:
        """Iterate the feeds given at construction."""
        return iter(self.feeds)

    def emit(self, event: str, **facts: object) -> None:
        """Record the event."""
        self.events.append((event, facts))


def bare_context(feeds: Sequence[Feed] = ()) -> BareContext:
    """Make a context for a unit test."""
    return BareContext(feeds)
