"""Read the arrays of an npz row by row, so that a large file never has to fit in memory."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from optcc.errors import ConfigError

__all__ = ["Member", "NpzFile"]

_SUFFIX = ".npy"


@dataclass(frozen=True, slots=True)
class Member:
    """Header of one array in the file.

    Attributes:
        fortran: Whether the columns, not the rows, lie together in the file.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool


class NpzFile:
    """An npz whose headers are read at once and whose numbers are read on demand.

    Args:
        path: File written by `numpy.savez` or `numpy.savez_compressed`.

    Raises:
        ConfigError: It is no npz, or an array in it would need unpickling.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable(path), zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.endswith(_SUFFIX)]
            self.members = {n.removesuffix(_SUFFIX): _header(archive, n) for n in sorted(names)}
        for member in self.members.values():
            if member.dtype.hasobject:
                raise ConfigError(
                    f"array {member.name!r} in {path.name} holds Python objects",
                    where=str(path),
                    hint="save plain numeric arrays with numpy.savez",
                )

    def load(self, name: str) -> np.ndarray:
        """Read one whole array."""
        with self._opened(name) as stream:
            return np.asarray(npy.read_array(stream, allow_pickle=False))

    def rows(self, name: str, size: int) -> Iterator[np.ndarray]:
        """Yield blocks of at most `size` rows of one array, in order."""
        member = self.members[name]
        with self._opened(name) as stream:
            _skip_header(stream)
            read = _column_major if member.fortran and len(member.shape) > 1 else _row_major
            yield from read(stream, member, size)

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        with (
            _readable(self.path),
            zipfile.ZipFile(self.path) as archive,
            archive.open(name + _SUFFIX) as stream,
        ):
            yield stream


def _row_major(stream: IO[bytes], member: Member, size: int) -> Iterator[np.ndarray]:
    width = int(np.prod(member.shape[1:], dtype=np.int64)) * member.dtype.itemsize
    for start in range(0, member.shape[0], size):
        count = min(size, member.shape[0] - start)
        data = stream.read(count * width)
        if len(data) != count * width:
            raise EOFError(f"array {member.name!r} ends early")
        yield np.frombuffer(data, member.dtype).reshape(count, *member.shape[1:])


def _column_major(stream: IO[bytes], member: Member, size: int) -> Iterator[np.ndarray]:
    """Rows of a Fortran-ordered array are scattered: unpack it to disk and map it."""
    with tempfile.TemporaryFile() as scratch:
        shutil.copyfileobj(stream, scratch)
        scratch.flush()
        mapped = np.memmap(scratch, member.dtype, "r", shape=member.shape, order="F")
        for start in range(0, member.shape[0], size):
            yield np.ascontiguousarray(mapped[start : start + size])


def _header(archive: zipfile.ZipFile, entry: str) -> Member:
    with archive.open(entry) as stream:
        shape, fortran, dtype = _skip_header(stream)
    return Member(entry.removesuffix(_SUFFIX), shape, dtype, fortran)


def _skip_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream)
    return npy.read_array_header_2_0(stream)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"{path.name} cannot be read as npz: {reason[:200]}",
            where=str(path),
            hint="write it with numpy.savez(path, <input name>=array, ...)",
        ) from error
