"""trace.jsonl: one event a line, the same bytes for the same run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

__all__ = ["TraceWriter"]


class TraceWriter:
    """Writes events as they come. Facts must not hold times, paths or addresses.

    Used as `with TraceWriter(path) as trace: trace.emit("rewrite", node="conv1")`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = 0
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def emit(self, event: str, **facts: object) -> None:
        """Write one event; the keys of `facts` are sorted."""
        ordered = {"event": event} | {k: _json(facts[k]) for k in sorted(facts)}
        self._file.write(json.dumps(ordered, ensure_ascii=False, separators=(",", ":")) + "\n")
        self.events += 1

    def close(self) -> None:
        """Finish the file; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _json(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): _json(value[k]) for k in sorted(value, key=str)}
    if isinstance(value, set | frozenset):
        return sorted((_json(v) for v in value), key=repr)
    if isinstance(value, list | tuple):
        return [_json(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return _json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    return value.name if isinstance(value, Path) else str(value)
