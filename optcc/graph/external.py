"""External tensor data: which files a model may read, and reading exactly those.

A model file names its data files by itself, so the names are not to be trusted. Every path is
judged here before any library sees it; the file that was judged is the file that is mapped.
"""

from __future__ import annotations

import mmap
import ntpath
import os
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from optcc.errors import UnsupportedModelError

__all__ = ["DataFiles", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """Where the bytes of one tensor lie.

    Attributes:
        tensor: Name of the tensor, for messages.
        location: As the model file spells it.
        offset: In bytes.
        length: In bytes; None when the model file does not say.
    """

    tensor: str
    location: str
    offset: int
    length: int | None


@dataclass(slots=True)
class DataFiles:
    """The data files of one model, each opened, judged and mapped once.

    Attributes:
        model: Path of the model file as the user gave it.
        data_root: Folder that the user vouches for, or None.
    """

    model: Path
    data_root: Path | None = None
    _maps: dict[str, memoryview] = field(default_factory=dict)

    def read(self, span: Span, nbytes: int) -> memoryview:
        """Return the bytes of one tensor as a view of the mapped file.

        Args:
            span: Where the model says they are.
            nbytes: How many the type and dims of the tensor ask for.

        Raises:
            UnsupportedModelError: The path is not allowed, or the file is missing or too short.
        """
        if span.length is not None and span.length != nbytes:
            raise _refusal(span, f"declares {span.length} bytes where its dims need {nbytes}")
        data = self._file(span)
        end = span.offset + nbytes
        if span.offset < 0 or end > len(data):
            what = f"needs bytes {span.offset} to {end} of {span.location!r}, which has {len(data)}"
            raise _refusal(span, what, hint="the data file is truncated: fetch it again")
        return data[span.offset : end]

    def _file(self, span: Span) -> memoryview:
        if span.location not in self._maps:
            real = self._judge(span)
            self._maps[span.location] = self._map(span, real)
        return self._maps[span.location]

    def _bases(self) -> list[Path]:
        """Folders of the model: of the path as given, and of the file that it links to."""
        given = Path(os.path.realpath(self.model.parent))
        linked = Path(os.path.realpath(self.model)).parent
        return [given] if given == linked else [given, linked]

    def _judge(self, span: Span) -> Path:
        location = span.location
        if not location or "\0" in location:
            raise _refusal(span, f"has the external location {location!r}")
        if self.data_root is None:
            self._check_spelling(span)
        real = self._find(span)
        if not self._inside(real):
            link = self._bases()[0] / location
            raise _refusal(
                span,
                f"reads external data outside the model's folder: {location!r}",
                hint=f"add --data-root {_quoted(real.parent)}, or copy it:"
                f" cp --remove-destination {_quoted(real)} {_quoted(link)}",
            )
        return real

    def _check_spelling(self, span: Span) -> None:
        location = span.location
        kind = ""
        if os.path.isabs(location) or ntpath.isabs(location) or ntpath.splitdrive(location)[0]:
            kind = "an absolute external path"
        elif ".." in location.replace("\\", "/").split("/"):
            kind = "an external path with '..'"
        if kind:
            folder = Path(os.path.normpath(self._bases()[0] / location)).parent
            hint = f"add --data-root {_quoted(folder)} if you trust what lies there"
            raise _refusal(span, f"has {kind}: {location!r}", hint=hint)

    def _find(self, span: Span) -> Path:
        folders = self._bases()
        if self.data_root is not None:
            folders.append(self.data_root)
        for folder in folders:
            candidate = folder / span.location
            if os.path.exists(candidate):
                return Path(os.path.realpath(candidate))
        raise _refusal(
            span,
            f"reads {span.location!r}, which does not exist beside the model",
            hint=f"put {PurePosixPath(span.location).name} into the folder of {self.model.name}"
            " or add --data-root DIR",
        )

    def _inside(self, real: Path) -> bool:
        return any(real.is_relative_to(base) for base in self._bases()) or self._vouched(real)

    def _vouched(self, real: Path) -> bool:
        root = self.data_root
        return root is not None and real.is_relative_to(os.path.realpath(root))

    def _map(self, span: Span, real: Path) -> memoryview:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            handle = os.open(real, flags | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise _refusal(span, f"cannot read {span.location!r}: {error.strerror}") from error
        try:
            self._check_opened(span, real, os.fstat(handle))
            size = os.fstat(handle).st_size
            if size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(handle, size, access=mmap.ACCESS_READ))
        finally:
            os.close(handle)

    def _check_opened(self, span: Span, real: Path, opened: os.stat_result) -> None:
        if not stat.S_ISREG(opened.st_mode):
            raise _refusal(span, f"reads {span.location!r}, which is not a regular file")
        if not os.path.samestat(opened, os.lstat(real)) or os.path.realpath(real) != str(real):
            raise _refusal(span, f"reads {span.location!r}, which changed meanwhile")
        if opened.st_nlink > 1 and not self._vouched(real):
            file, copy = _quoted(real), _quoted(real.with_name(f"{real.name}.copy"))
            raise _refusal(
                span,
                f"reads external data that is a hard link: {span.location!r}",
                hint=f"add --data-root {_quoted(real.parent)}, or copy it:"
                f" cp {file} {copy} && mv {copy} {file}",
            )


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _refusal(span: Span, what: str, *, hint: str | None = None) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"tensor {span.tensor!r} {what}", hint=hint, where=f"tensor {span.tensor!r}"
    )
