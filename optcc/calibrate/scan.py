"""One pass over the data before it is used: counts, shapes, duplicates, constant inputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from optcc.calibrate.sources import Batch, Source
from optcc.errors import ConfigError

__all__ = ["DataFinding", "Scan", "findings_of", "scan"]

_FEW_SAMPLES = 32
_DUPLICATE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class DataFinding:
    """Something about the data that a person should know. `code` is stable."""

    code: str
    message: str
    severity: Literal["note", "warning", "red"]


@dataclass(slots=True)
class Scan:
    """What one pass over the data found.

    Attributes:
        counts: Samples in each feed.
        digests: One 64-bit digest per sample, in order.
        labels: One row per sample, or None.
        shapes: Per input the first shape seen, then the least and the largest size per dim.
        constant: Per input the only value it ever takes, while that holds.
    """

    counts: list[int] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    labels: np.ndarray | None = None
    shapes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    constant: dict[str, object] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(self.counts)


def scan(source: Source) -> Scan:
    """Read the whole source once; every array is checked on the way.

    Raises:
        ConfigError: There is no sample, or only some feeds carry labels.
    """
    found, labels = Scan(), []
    for batch in source.read():
        _add(found, batch)
        labels.append(batch.labels)
    if not found.counts:
        raise ConfigError(f"{source.name} holds no sample", where=source.name)
    found.labels = _joined(labels, source.name)
    return found


def _add(found: Scan, batch: Batch) -> None:
    first = not found.counts
    found.counts.append(batch.count)
    found.digests.extend(_digests(batch))
    for name, array in batch.feed.items():
        found.shapes[name] = _widened(found.shapes.get(name), array.shape)
        sole = array.flat[0]
        if not bool(np.all(array == sole)):
            found.constant.pop(name, None)
        elif first:
            found.constant[name] = sole
        elif name in found.constant and found.constant[name] != sole:
            del found.constant[name]


def _digests(batch: Batch) -> list[int]:
    arrays = [a if a.dtype != object else a.astype(np.str_) for a in batch.feed.values()]
    split = batch.count > 1 or all(a.ndim and len(a) == 1 for a in arrays)
    if not split:
        return [_digest([a.tobytes() for a in arrays])]
    return [_digest([a[i].tobytes() for a in arrays]) for i in range(batch.count)]


def _digest(parts: list[bytes]) -> int:
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return int.from_bytes(state.digest(), "little")


def _widened(
    known: tuple[tuple[int, ...], ...] | None, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    if known is None or len(known[0]) != len(shape):
        return (shape, shape, shape)
    first, low, high = known
    return (
        first,
        tuple(min(a, b) for a, b in zip(low, shape, strict=True)),
        tuple(max(a, b) for a, b in zip(high, shape, strict=True)),
    )


def _joined(labels: list[np.ndarray | None], where: str) -> np.ndarray | None:
    present = [rows for rows in labels if rows is not None]
    if not present:
        return None
    if len(present) != len(labels):
        raise ConfigError(f"only {len(present)} of {len(labels)} feeds of {where} carry labels")
    if len({rows.shape[1:] for rows in present}) > 1:
        raise ConfigError(f"the labels in {where} differ in shape from feed to feed", where=where)
    return np.concatenate(present)


def findings_of(found: Scan, *, purpose: str) -> list[DataFinding]:
    """Say what is doubtful about the data; `purpose` is `calibration` or `evaluation`."""
    findings = []
    if found.samples < _FEW_SAMPLES:
        text = f"only {found.samples} {purpose} samples; {_FEW_SAMPLES} or more are advised"
        findings.append(DataFinding("few-samples", text, "warning"))
    twins = found.samples - len(set(found.digests))
    if twins > _DUPLICATE_SHARE * found.samples:
        text = f"{twins} of {found.samples} {purpose} samples repeat an earlier one"
        findings.append(DataFinding("duplicate-samples", text, "warning"))
    for name in sorted(found.constant):
        if found.samples > 1 and np.prod(found.shapes[name][0], dtype=np.int64) > 1:
            text = f"input {name!r} is {found.constant[name]} in every {purpose} sample"
            findings.append(DataFinding("constant-input", text, "warning"))
    return findings
