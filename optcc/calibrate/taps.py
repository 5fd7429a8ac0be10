"""Run the float model and fetch inner values, never more than a budget of bytes at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from optcc.calibrate.sources import Batch
from optcc.graph.edit import fresh_name
from optcc.graph.io import clone, to_bytes, write_model
from optcc.graph.walk import taken_names
from optcc.passkit.contract import Feed
from optcc.runtime.session import OptimizationLevel, Session

__all__ = [
    "ELEMENT_BYTES",
    "RunPlan",
    "Tap",
    "fed_names",
    "measured_bytes",
    "plan_runs",
    "tapped",
    "typical_feed",
]

_IN_MEMORY_BYTES = 64 << 20
"""Larger models go to the runtime through a file, which it maps instead of copying."""

ELEMENT_BYTES = 4

_MOST_ROWS = 8
"""Samples in one run, where the batch is free: what the runtime holds inside grows with them."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How to fetch values within a budget.

    Attributes:
        groups: Values to fetch together; each group takes its own pass over the data.
        rows: Most samples to run at once; None runs each feed whole.
    """

    groups: tuple[tuple[str, ...], ...]
    rows: int | None = None

    def parts(self, feed: Feed) -> Iterator[Feed]:
        """Cut one feed as planned."""
        total = len(next(iter(feed.values()))) if self.rows is not None else 0
        if self.rows is None or total <= self.rows:
            yield feed
            return
        for start in range(0, total, self.rows):
            yield {n: a[start : start + self.rows] for n, a in feed.items()}


class Tap:
    """An open model whose named values can be fetched."""

    def __init__(self, session: Session | None, fed: Sequence[str]) -> None:
        self._session, self._fed = session, fed

    def fetch(self, feed: Feed) -> Feed:
        """Return the named values on one feed; model inputs come from the feed itself."""
        computed = self._session.run(feed) if self._session is not None else {}
        return {n: feed[n] for n in self._fed} | computed


def typical_feed(batch: Batch, *, free_batch: bool) -> tuple[Feed, int | None]:
    """Return a feed to measure values on: one sample where feeds may be cut, else all of it.

    Returns:
        The feed, and the number of samples in it if feeds may be cut.
    """
    if not free_batch:
        return batch.feed, None
    return {n: a[:1] for n, a in batch.feed.items()}, 1


def fed_names(model: ir.Model) -> set[str]:
    """Return the names of the model inputs."""
    return {v.name or "" for v in model.graph.inputs}


@contextmanager
def tapped(model: ir.Model, names: Sequence[str]) -> Iterator[Tap]:
    """Open the model for fetching `names`: inputs, or results of nodes of the main graph."""
    fed = [n for n in names if n in fed_names(model)]
    computed = [n for n in names if n not in fed]
    if not computed:
        yield Tap(None, fed)
        return
    copy = clone(model)
    made = _results(copy)
    outer = set(copy.graph.outputs)
    for value in (made[n] for n in computed):
        if value not in outer:
            value.shape = None  # the runtime finds it; a declared one may be stale
    copy.graph.outputs[:] = [made[n] for n in computed]
    with _opened(copy) as session:
        yield Tap(session, fed)


def _results(model: ir.Model) -> dict[str, ir.Value]:
    return {v.name: v for node in model.graph for v in node.outputs if v.name}


@contextmanager
def _opened(model: ir.Model) -> Iterator[Session]:
    weights = [v.const_value for v in model.graph.initializers.values()]
    if sum(w.nbytes for w in weights if w is not None) < _IN_MEMORY_BYTES:
        yield Session(to_bytes(model), level=OptimizationLevel.ALL)
        return
    with tempfile.TemporaryDirectory(prefix="optcc-calibrate-") as folder:
        path = write_model(model, Path(folder) / "model.onnx", external_above=_IN_MEMORY_BYTES)[0]
        yield Session(path, level=OptimizationLevel.ALL)


def plan_runs(
    model: ir.Model, names: Sequence[str], feed: Feed, rows: int | None, budget_bytes: int
) -> RunPlan:
    """Plan how to fetch `names` so that no run holds more than the budget of them.

    Args:
        model: It is not changed.
        names: Inputs, or results of nodes of the main graph.
        feed: A typical feed; it is run once to measure the values.
        rows: Samples in `feed` when feeds may be cut, else None.
        budget_bytes: One value of one sample that exceeds it is still fetched, alone.
    """
    sizes = measured_bytes(model, names, feed)
    if rows is None:
        return RunPlan(_grouped(sizes, budget_bytes))
    single = {n: -(-size // rows) for n, size in sizes.items()}
    fitting = budget_bytes // max(sum(single.values()), 1)
    return RunPlan(_grouped(single, budget_bytes), min(max(fitting, 1), _MOST_ROWS))


def measured_bytes(model: ir.Model, names: Sequence[str], feed: Feed) -> dict[str, int]:
    """Return how much the named values take on `feed` as float32, without fetching them."""
    counts = _elements(model, names, feed)
    return {n: counts[n] * ELEMENT_BYTES for n in names}


def _elements(model: ir.Model, names: Sequence[str], feed: Feed) -> dict[str, int]:
    copy = clone(model)
    made = _results(copy)
    taken = taken_names(copy.graph)
    sizes = {n: _size_of(copy.graph, made[n], taken) for n in names if n in made}
    counts = {n: int(feed[n].size) for n in names if n in feed and n not in made}
    if not sizes:
        return counts
    copy.graph.outputs[:] = list(sizes.values())
    with _opened(copy) as session:
        got = session.run(feed)
    return counts | {n: int(got[v.name or ""]) for n, v in sizes.items()}


def _size_of(graph: ir.Graph, value: ir.Value, taken: set[str]) -> ir.Value:
    node = ir.node("Size", [value])
    size = node.outputs[0]
    size.name = fresh_name(graph, f"{value.name}.elements", taken)
    size.type = ir.TensorType(ir.DataType.INT64)
    graph.append(node)
    return size


def _grouped(sizes: Mapping[str, int], budget_bytes: int) -> tuple[tuple[str, ...], ...]:
    groups: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if not groups or size > room:
            groups.append([])
            room = budget_bytes
        groups[-1].append(name)
        room -= size
    return tuple(tuple(g) for g in groups)
