"""All outputs of one model, kept in temporary files so that memory does not grow."""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np

from optcc.passkit.contract import Feed

__all__ = ["OutputSpool"]


class OutputSpool:
    """Takes batches of outputs and gives them back as a whole."""

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = {}
        self._shapes: dict[str, list[tuple[int, ...]]] = {}
        self._dtypes: dict[str, np.dtype] = {}
        self._text: dict[str, list[np.ndarray]] = {}

    def add(self, outputs: Feed) -> None:
        """Append one batch."""
        for name, array in outputs.items():
            if array.dtype.kind in "OUS":
                self._text.setdefault(name, []).append(array)
                continue
            if name not in self._files:
                self._files[name] = tempfile.TemporaryFile()  # noqa: SIM115
            self._files[name].write(np.ascontiguousarray(array).tobytes())
            self._shapes.setdefault(name, []).append(array.shape)
            self._dtypes[name] = array.dtype

    def arrays(self) -> dict[str, object]:
        """Return everything so far, one entry per output.

        An entry is one array, joined on axis 0, or a list with one array per batch where the other
        dims differ between batches.
        """
        arrays: dict[str, object] = {n: _joined(parts) for n, parts in self._text.items()}
        for name, file in self._files.items():
            file.flush()
            arrays[name] = _joined(self._parts(name, file))
        return arrays

    def close(self) -> None:
        """Close and so remove the files; arrays that were handed out stay readable."""
        for file in self._files.values():
            file.close()

    def _parts(self, name: str, file: IO[bytes]) -> list[np.ndarray] | np.ndarray:
        shapes, dtype = self._shapes[name], self._dtypes[name]
        sizes = [int(np.prod(s)) for s in shapes]
        if not sum(sizes):
            return [np.empty(s, dtype) for s in shapes]
        flat = np.memmap(file, dtype, mode="c", shape=(sum(sizes),))
        if all(len(s) and s[1:] == shapes[0][1:] for s in shapes):
            return flat.reshape(-1, *shapes[0][1:])
        ends = np.cumsum(sizes)[:-1]
        pieces = np.split(flat, ends)
        return [p.reshape(s) for p, s in zip(pieces, shapes, strict=True)]


def _joined(parts: list[np.ndarray] | np.ndarray) -> object:
    if isinstance(parts, np.ndarray):
        return parts
    if all(p.ndim and p.shape[1:] == parts[0].shape[1:] for p in parts):
        return np.concatenate(parts)
    return parts
