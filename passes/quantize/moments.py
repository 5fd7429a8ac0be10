"""Second moments of what layers read, taken from a few samples in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import remove_dead
from optcc.graph.io import clone
from optcc.passkit.contract import Feed, PassContext
from passes.quantize.windows import Geometry, input_rows

__all__ = ["Moment", "Reading", "moments"]

_MOST_TAPPED = 1 << 28
_MOST_MOMENTS = 1 << 29
"""Bytes that are held at a time."""

_FLUSH_ROWS = 512


@dataclass(frozen=True, slots=True)
class Reading:
    """What some layers have in common: the value they read, and how.

    Attributes:
        value: Its name.
        geometry: Of the layers.
        inputs: Of one sum.
        low: What the value is clipped to from below.
        high: And from above.
    """

    value: str
    geometry: Geometry
    inputs: int
    low: float
    high: float

    @property
    def nbytes(self) -> int:
        """Bytes that the moments of both halves of the samples take."""
        return 8 * self.geometry.groups * self.inputs**2


@dataclass(slots=True)
class Moment:
    """A sum of x x^T.

    Attributes:
        total: float32 [groups, inputs, inputs].
        rows: How many x.
    """

    total: np.ndarray
    rows: int = 0
    _waiting: list[np.ndarray] = field(default_factory=list)

    def add(self, rows: np.ndarray) -> None:
        """Add x [groups, rows, inputs]."""
        self._waiting.append(rows)
        self.rows += rows.shape[1]
        if sum(r.shape[1] for r in self._waiting) >= _FLUSH_ROWS:
            self._flush()

    def mean(self) -> np.ndarray:
        """Return the mean of x x^T."""
        self._flush()
        return self.total / np.float32(max(1, self.rows))

    def _flush(self) -> None:
        if self._waiting:
            rows = np.concatenate(self._waiting, axis=1)
            self.total += np.swapaxes(rows, 1, 2) @ rows
            self._waiting.clear()


def moments(
    model: ir.Model,
    ctx: PassContext,
    feeds: Sequence[Feed],
    readings: Sequence[Reading],
    most_rows: int,
) -> Iterator[tuple[Reading, Moment, Moment]]:
    """Yield each reading with the moments of the even and of the odd feeds.

    Args:
        model: It is run as it is.
        ctx: Runs it.
        feeds: Samples, at least two.
        readings: In the order of the result.
        most_rows: How many sums are looked at per reading, over all feeds.
    """
    bytes_of = _bytes_of(model, ctx, feeds[0], readings)
    for group in _groups(readings, bytes_of):
        names = list(dict.fromkeys(r.value for r in group))
        tapped = max(1, sum(bytes_of[n] for n in names))
        found = [(r, _empty(r), _empty(r)) for r in group]
        chunk = max(1, _MOST_TAPPED // tapped)
        for start in range(0, len(feeds), chunk):
            got = _run(model, ctx, feeds[start : start + chunk], names)
            for index, values in enumerate(got, start):
                for reading, *halves in found:
                    data = np.clip(values[reading.value], reading.low, reading.high)
                    rows = input_rows(data, reading.geometry, most_rows // len(feeds))
                    halves[index % 2].add(rows)
        yield from found


def _empty(reading: Reading) -> Moment:
    dims = (reading.geometry.groups, reading.inputs, reading.inputs)
    return Moment(np.zeros(dims, np.float32))


def _bytes_of(
    model: ir.Model, ctx: PassContext, feed: Feed, readings: Sequence[Reading]
) -> dict[str, int]:
    names = list(dict.fromkeys(r.value for r in readings))
    return {n: a.nbytes for n, a in _run(model, ctx, [feed], names)[0].items()}


def _groups(readings: Sequence[Reading], bytes_of: Mapping[str, int]) -> Iterator[list[Reading]]:
    """Cut `readings` so that one feed and the moments of a group fit into memory."""
    group: list[Reading] = []
    for reading in readings:
        held = [*group, reading]
        tapped = sum(bytes_of[n] for n in {r.value for r in held})
        if group and (tapped > _MOST_TAPPED or sum(r.nbytes for r in held) > _MOST_MOMENTS):
            yield group
            held = [reading]
        group = held
    if group:
        yield group


def _run(
    model: ir.Model, ctx: PassContext, feeds: Sequence[Feed], names: Sequence[str]
) -> list[Feed]:
    """Return the named values of `model`, inner ones included."""
    copy = clone(model)
    made = {v.name: v for n in copy.graph for v in n.outputs}
    tapped = [n for n in names if n in made]
    copy.graph.outputs[:] = [made[n] for n in tapped]
    remove_dead(copy.graph)
    got = ctx.run_all(copy, feeds, tapped) if tapped else [{} for _ in feeds]
    given = [{n: f[n] for n in names if n not in made} for f in feeds]
    return [{**a, **b} for a, b in zip(got, given, strict=True)]
