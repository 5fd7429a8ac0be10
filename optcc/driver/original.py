"""The original model as the runtime sees it: the reference of every accuracy and latency figure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optcc.frontends.onnx_file import LoadedModel
from optcc.graph.io import write_model

__all__ = ["original_file"]


@contextmanager
def original_file(loaded: LoadedModel) -> Iterator[Path]:
    """Yield a file that the runtime can open; enter it before the model is changed.

    A model with external data is written out once, because the runtime follows its own rules on
    where data may lie; ours have already judged it. So is one that got preprocessing put in.
    """
    if loaded.nbytes <= loaded.path.stat().st_size and not loaded.rewritten:
        yield loaded.path
        return
    with tempfile.TemporaryDirectory(prefix="optcc-") as folder:
        path = Path(folder) / "original.onnx"
        write_model(loaded.model, path)
        yield path
