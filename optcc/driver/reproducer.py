"""The smallest model that shows a fault, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optcc.errors import ConfigError, WriteError
from optcc.graph.io import write_model
from optcc.passkit.contract import Feed

__all__ = ["check_free", "write_reproducer"]


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something, before the long work.

    Raises:
        ConfigError: It is no folder, or not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"--reproducer {folder} exists already", hint="give a folder that is new or empty"
        )


def write_reproducer(
    folder: Path, before: ir.Model | None, after: ir.Model | None, feeds: Sequence[Feed]
) -> None:
    """Write `before.onnx`, `after.onnx` (None: no such file) and `feeds_<k>.npz`.

    Raises:
        WriteError: The disk does not take them.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for model, file in ((before, "before.onnx"), (after, "after.onnx")):
            if model is not None:
                write_model(model, folder / file)
        for k, feed in enumerate(feeds):
            np.savez(folder / f"feeds_{k}.npz", **feed)  # type: ignore[arg-type]
    except OSError as error:
        raise WriteError(f"cannot write {folder}: {error.strerror}", where=str(folder)) from error
