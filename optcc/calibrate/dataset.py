"""Calibration and evaluation data: open it, check it, split it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from optcc.calibrate.feed_check import batch_of, is_batched
from optcc.calibrate.random_feeds import random_feeds
from optcc.calibrate.scan import DataFinding, Scan, findings_of, scan
from optcc.calibrate.sources import Batch, CallableFeeds, NpzFolder, NpzRows, Source
from optcc.config.shapes import ShapeProfile
from optcc.errors import ConfigError
from optcc.graph.signature import Signature
from optcc.passkit.contract import Feed
from optcc.runtime.user_code import import_callable

__all__ = [
    "DEFAULT_BATCH",
    "Batch",
    "DataFinding",
    "Dataset",
    "find_by_convention",
    "from_feeds",
    "open_source",
    "overlap",
    "split",
]

DEFAULT_BATCH = 16
"""Samples in a feed when the model leaves the batch free."""

_RANDOM = "random"
_RANDOM_FEEDS = 64
_CALLABLE = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


class Dataset:
    """Checked samples that can be read again and again, one feed at a time.

    Attributes:
        source: Where they come from, without folders: `digits.npz`, `calib/`, `mod:fn`, `random`.
        samples: How many there are.
        labels: One row per sample, in order, or None.
        shapes: Per input the first shape, then the least and the largest size per dim.
        findings: What is doubtful about the data.
        digests: One 64-bit digest per sample, in order.
        random: Whether the samples are random numbers.
        free_batch: Whether a feed may be cut along axis 0 of its inputs.
    """

    def __init__(
        self,
        source: Source,
        found: Scan,
        findings: Sequence[DataFinding] = (),
        *,
        keep: np.ndarray | None = None,
        random: bool = False,
        free_batch: bool = False,
    ) -> None:
        self._source, self._found, self._keep = source, found, keep
        self.random, self.free_batch = random, free_batch
        rows = _kept_rows(found, keep, by_row=source.by_row)
        self.source, self.shapes = source.name, found.shapes
        self.findings = tuple(findings)
        self.labels = None if found.labels is None else found.labels[rows]
        self.digests = np.array(found.digests, np.uint64)[rows]
        self.samples = len(self.digests)

    def batches(self) -> Iterator[Batch]:
        """Yield the feeds with the number of samples that count and their labels."""
        return self._source.read(self._keep)

    def __iter__(self) -> Iterator[Feed]:
        """Yield the feeds alone."""
        return (batch.feed for batch in self.batches())

    def __len__(self) -> int:
        """Count the samples."""
        return self.samples

    def thinned(self, samples: int) -> Dataset:
        """Return about `samples` of the samples, spread evenly; whole feeds where they are given.

        At least one feed is kept; a dataset that is small enough is returned as it is.
        """
        if self.samples <= samples:
            return self
        size = len(self._found.counts) if not self._source.by_row else self._found.samples
        units = np.arange(size) if self._keep is None else np.flatnonzero(self._keep)
        wanted = max(1, round(samples * len(units) / self.samples))
        keep = np.zeros(size, np.bool_)
        keep[units[np.arange(wanted) * len(units) // wanted]] = True
        return self._parts(keep)

    def _parts(self, keep: np.ndarray) -> Dataset:
        return Dataset(
            self._source,
            self._found,
            self.findings,
            keep=keep,
            random=self.random,
            free_batch=self.free_batch,
        )


def _kept_rows(found: Scan, keep: np.ndarray | None, *, by_row: bool) -> np.ndarray:
    if keep is None:
        return np.arange(found.samples)
    return np.flatnonzero(keep if by_row else np.repeat(keep, found.counts))


def open_source(
    text: str,
    *,
    signature: Signature,
    kind: Literal["calib", "eval", "inputs"],
    search: Sequence[Path] = (),
    batch: int | None = None,
    profile: ShapeProfile | None = None,
    seed: int = 0,
) -> Dataset:
    """Open the value of `--calib`, `--eval` or `--inputs` and check all of it once.

    Args:
        text: Path of an npz or of a folder of npz, `module:callable`, or `random`.
        signature: The model's inputs that the data must fit.
        kind: `eval` reads labels and refuses `random`; the others ignore labels.
        search: Folders besides the working folder for relative paths and modules.
        batch: Samples in a feed where the model leaves the batch free.
        profile: Sizes of free dims, needed by `random` only.
        seed: Of the random samples.

    Raises:
        ConfigError: The data is missing, empty or does not fit, said by name.
    """
    options = _Options(signature, kind, tuple(search), batch or DEFAULT_BATCH, profile, seed)
    source = _source(text, options)
    found = scan(source)
    findings = findings_of(found, purpose="evaluation" if kind == "eval" else "calibration")
    if text == _RANDOM:
        note = "the ranges come from random numbers, not from data; the accuracy is unverified"
        findings = [DataFinding("random-data", note, "red")]
    return Dataset(
        source, found, findings, random=text == _RANDOM, free_batch=_batch_is_free(signature)
    )


def _batch_is_free(signature: Signature) -> bool:
    return is_batched(signature) and batch_of(signature) is None


@dataclass(frozen=True, slots=True)
class _Options:
    signature: Signature
    kind: Literal["calib", "eval", "inputs"]
    search: tuple[Path, ...]
    batch: int
    profile: ShapeProfile | None
    seed: int

    @property
    def labels(self) -> bool:
        return self.kind == "eval"


def _source(text: str, options: _Options) -> Source:
    if text == _RANDOM:
        return _random(options)
    path = _located(text, options.search)
    if path is not None and path.is_dir():
        return NpzFolder(path, options.signature, labels=options.labels)
    if path is not None and path.suffix == ".npz":
        return _rows(path, options)
    if path is None and _CALLABLE.fullmatch(text):
        make = _imported(text, options)
        return CallableFeeds(text, make, options.signature, labels=options.labels)
    what = "does not exist" if path is None else "is neither an npz nor a folder of npz"
    raise ConfigError(
        f"--{options.kind} {text} {what}",
        hint=f"--{options.kind} takes an .npz, a folder of .npz files or module:callable",
    )


def _random(options: _Options) -> Source:
    if options.kind == "eval":
        raise ConfigError(
            "--eval is 'random', which would measure nothing",
            hint="give labelled samples, or leave --eval out to compare with the original",
        )

    def make() -> Iterable[Feed]:
        return random_feeds(
            options.signature, options.profile, seed=options.seed, feeds=_RANDOM_FEEDS
        )

    return CallableFeeds(_RANDOM, make, options.signature, labels=False)


def _rows(path: Path, options: _Options) -> Source:
    fixed = batch_of(options.signature) if is_batched(options.signature) else None
    return NpzRows(
        path,
        options.signature,
        batch=fixed or options.batch,
        pad=fixed is not None,
        labels=options.labels,
    )


def _located(text: str, search: Sequence[Path]) -> Path | None:
    for folder in (Path(), *search):
        path = folder / Path(text).expanduser()
        if path.exists():
            return path
    return None


def _imported(text: str, options: _Options) -> Callable[[], Iterable[object]]:
    target = import_callable(f"--{options.kind}", text, options.search)
    return cast("Callable[[], Iterable[object]]", target)


def from_feeds(
    feeds: Sequence[Mapping[str, np.ndarray]], signature: Signature, name: str = "feeds"
) -> Dataset:
    """Make a dataset of feeds in memory."""
    source = CallableFeeds(name, lambda: [dict(f) for f in feeds], signature, labels=True)
    found = scan(source)
    findings = findings_of(found, purpose="calibration")
    return Dataset(source, found, findings, free_batch=_batch_is_free(signature))


def find_by_convention(model_path: Path, cwd: Path) -> tuple[Path | None, list[Path]]:
    """Look for calibration data beside the model, then in the working folder.

    Returns:
        The first that exists, or None, and all places in the order they were looked at.
    """
    places, beside = [], model_path.parent
    for folder in (beside,) if beside.resolve() == cwd.resolve() else (beside, cwd):
        base = folder / "calibration_data"
        places += [base / f"{model_path.stem}.npz", base / model_path.stem]
    return next((p for p in places if p.exists()), None), places


def split(dataset: Dataset, held_back: float = 0.2) -> tuple[Dataset, Dataset | None]:
    """Set samples aside, spread evenly over the data, so that a gate can use unseen ones.

    Args:
        dataset: A whole dataset, not a part.
        held_back: Share to set aside, above 0 and below 1.

    Returns:
        The samples for ranges and the samples set aside; None when there are too few for both.
    """
    if not 0 < held_back < 1:
        raise ConfigError(f"the share held back is {held_back}, it must be above 0 and below 1")
    units = dataset.samples if dataset._source.by_row else len(dataset._found.counts)
    edges = np.floor(np.arange(units + 1) * held_back + 1e-9)
    aside = np.diff(edges) > 0
    if units > 1 and not aside.any():
        aside[-1] = True
    if not aside.any():
        return dataset, None
    return dataset._parts(~aside), dataset._parts(aside)


def overlap(first: Dataset, second: Dataset) -> int:
    """Count the samples of `first` that also occur in `second`."""
    return int(np.isin(first.digests, second.digests).sum())
