"""Where samples come from: one npz, a folder of npz, a callable, or a random generator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from optcc.calibrate.feed_check import check_feed, check_rows, is_batched, samples_in, typed
from optcc.calibrate.npz_stream import NpzFile
from optcc.errors import ConfigError
from optcc.graph.signature import Signature
from optcc.passkit.contract import Feed
from optcc.runtime.user_code import user_code

__all__ = ["LABELS", "Batch", "CallableFeeds", "NpzFolder", "NpzRows", "Source"]

LABELS = "labels"
_MOST_FEEDS = 65_536


@dataclass(frozen=True, slots=True)
class Batch:
    """One complete feed.

    Attributes:
        feed: What the model is run on.
        count: Leading samples that count; rows after them repeat earlier ones because the model's
            batch is fixed and the data ended.
        labels: One row per counted sample, or None.
    """

    feed: Feed
    count: int
    labels: np.ndarray | None = None


class Source(Protocol):
    """Samples that can be read again and again.

    Attributes:
        name: Short text for the report; holds no path.
        by_row: Whether `keep` selects samples; otherwise it selects whole feeds.
    """

    name: str
    by_row: bool

    def read(self, keep: np.ndarray | None = None) -> Iterator[Batch]:
        """Yield the feeds in order; `keep` is a mask over samples or over feeds."""
        ...


class NpzRows:
    """One npz with samples on axis 0 of every array.

    Args:
        batch: Samples in a feed: the model's own batch when it is fixed.
        pad: Fill the last feed up to `batch` by repeating its samples.
        labels: Read `labels` from the file; otherwise an array of that name is ignored.
    """

    by_row = True

    def __init__(
        self, path: Path, signature: Signature, *, batch: int, pad: bool, labels: bool
    ) -> None:
        self.name, self._where, self._signature = path.name, path.name, signature
        self._batch, self._pad = batch, pad
        self._file = NpzFile(path)
        inputs = {s.name for s in signature.inputs}
        shapes = {n: m.shape for n, m in self._file.members.items() if n in inputs or n != LABELS}
        self._check_batched(shapes)
        self.samples, self._bare = check_rows(shapes, signature, self._where)
        self._labels = self._read_labels() if labels and LABELS not in inputs else None

    def _check_batched(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if is_batched(self._signature):
            return
        inputs = ", ".join(s.name for s in self._signature.inputs)
        raise ConfigError(
            f"the inputs of this model ({inputs}) share no batch axis, so {self._where} "
            "cannot be split into samples",
            where=self._where,
            hint="give a folder of npz files, each one complete feed, or module:callable",
        )

    def _read_labels(self) -> np.ndarray | None:
        if LABELS not in self._file.members:
            return None
        labels = self._file.load(LABELS)
        if labels.ndim == 0 or len(labels) != self.samples:
            raise ConfigError(
                f"labels in {self._where} have shape {labels.shape} for {self.samples} samples",
                where=self._where,
            )
        return labels

    def read(self, keep: np.ndarray | None = None) -> Iterator[Batch]:
        """Yield feeds of `batch` samples; the last may count fewer."""
        labels = self._labels if keep is None or self._labels is None else self._labels[keep]
        done = 0
        for feed in _rebatched(self._blocks(keep), self._batch):
            count = len(next(iter(feed.values())))
            if self._pad and count < self._batch:
                rows = np.arange(self._batch) % count
                feed = {n: a[rows] for n, a in feed.items()}
            yield Batch(feed, count, None if labels is None else labels[done : done + count])
            done += count

    def _blocks(self, keep: np.ndarray | None) -> Iterator[Feed]:
        names = [s.name for s in self._signature.inputs]
        start = 0
        for blocks in zip(*map(self._rows_of, names), strict=True):
            stop = start + len(blocks[0])
            if keep is None:
                yield dict(zip(names, blocks, strict=True))
            else:
                rows = np.flatnonzero(keep[start:stop])
                yield {n: b[rows] for n, b in zip(names, blocks, strict=True)}
            start = stop

    def _rows_of(self, name: str) -> Iterator[np.ndarray]:
        spec = next(s for s in self._signature.inputs if s.name == name)
        if name in self._bare:
            yield typed(self._file.load(name)[None], spec, self._where)
            return
        for block in self._file.rows(name, self._batch):
            yield typed(block, spec, self._where)


def _rebatched(blocks: Iterable[Feed], size: int) -> Iterator[Feed]:
    """Join and cut blocks of rows into feeds of `size` rows, the last one shorter."""
    held: Feed = {}
    for block in blocks:
        held = {n: np.concatenate([held[n], a]) for n, a in block.items()} if held else block
        while (have := len(next(iter(held.values())))) >= size:
            yield {n: a[:size] for n, a in held.items()}
            held = {n: a[size:] for n, a in held.items()} if have > size else {}
            if not held:
                break
    if held and len(next(iter(held.values()))):
        yield held


class NpzFolder:
    """A folder of npz files in name order, each one complete feed, batch included."""

    by_row = False

    def __init__(self, folder: Path, signature: Signature, *, labels: bool) -> None:
        self.name, self._signature, self._labels = f"{folder.name}/", signature, labels
        self._files = sorted(p for p in folder.iterdir() if p.suffix == ".npz" and p.is_file())
        if not self._files:
            raise ConfigError(
                f"the calib or eval folder {folder.name} is empty: no sample (.npz) in it",
                where=str(folder),
                hint="put one npz per feed into it, with one array per model input",
            )

    def read(self, keep: np.ndarray | None = None) -> Iterator[Batch]:
        """Yield one feed per file."""
        for index, path in enumerate(self._files):
            if keep is None or keep[index]:
                file = NpzFile(path)
                feed = {n: file.load(n) for n in file.members}
                yield feed_batch(feed, self._signature, path.name, labels=self._labels)


class CallableFeeds:
    """A callable that returns a fresh iterable of feeds, or of (feed, labels), on each call."""

    by_row = False

    def __init__(
        self,
        name: str,
        make: Callable[[], Iterable[object]],
        signature: Signature,
        *,
        labels: bool,
    ) -> None:
        self.name, self._make, self._signature, self._labels = name, make, signature, labels

    def read(self, keep: np.ndarray | None = None) -> Iterator[Batch]:
        """Call the callable and yield what it yields, checked."""
        for index, item in enumerate(self._items()):
            if index >= _MOST_FEEDS:
                raise ConfigError(
                    f"{self.name} yields more than {_MOST_FEEDS} feeds",
                    hint="end the iteration, or yield larger batches",
                )
            if keep is None or keep[index]:
                where = f"feed {index} of {self.name}"
                yield feed_batch(_feed_of(item, where), self._signature, where, labels=self._labels)

    def _items(self) -> Iterator[object]:
        with user_code(self.name):
            yield from self._make()


def feed_batch(feed: Feed, signature: Signature, where: str, *, labels: bool) -> Batch:
    """Check one complete feed and take its labels apart."""
    is_input = any(s.name == LABELS for s in signature.inputs)
    rows = None if is_input else feed.get(LABELS)
    data = {n: a for n, a in feed.items() if n != LABELS or is_input}
    checked = check_feed(data, signature, where)
    count = samples_in(checked, signature)
    if not labels or rows is None:
        return Batch(checked, count)
    rows = np.atleast_1d(rows)
    if count == 1 and len(rows) != 1:
        rows = rows[None]
    if len(rows) != count:
        raise ConfigError(
            f"labels in {where} have shape {rows.shape} for {count} samples", where=where
        )
    return Batch(checked, count, rows)


def _feed_of(item: object, where: str) -> Feed:
    labels: object = None
    if isinstance(item, tuple) and len(item) == 2:
        item, labels = item
    if not isinstance(item, Mapping) or not all(isinstance(n, str) for n in item):
        raise ConfigError(
            f"{where} is {type(item).__name__}, it must be a mapping of input name to array",
            hint="yield {'input name': array}, or ({'input name': array}, labels)",
        )
    feed = {n: a if isinstance(a, np.ndarray) else np.asarray(a) for n, a in item.items()}
    if labels is not None:
        feed[LABELS] = np.asarray(labels)
    return feed
