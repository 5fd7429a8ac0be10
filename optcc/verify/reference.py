"""Open an in-memory model in the reference runtime, whatever its size."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from optcc.graph.io import to_bytes, write_model
from optcc.graph.walk import all_graphs
from optcc.runtime.session import Session

__all__ = ["open_model", "weight_bytes"]

_INLINE_BYTES = 64 << 20
"""Above this a model goes through a file, whose weights the runtime maps: handing over a message
takes several copies of them at a time."""


@contextmanager
def open_model(model: ir.Model, *, also: Sequence[str] = ()) -> Iterator[Session]:
    """Open `model` with the runtime's own optimizations off.

    Args:
        model: It is not changed.
        also: Inner values of the main graph that become outputs too.

    Raises:
        BackendError: The runtime refuses it.
    """
    have = {v.name for v in model.graph.outputs}
    asked = model if have.issuperset(also) else with_outputs(model, also)
    if weight_bytes(model) < _INLINE_BYTES:
        yield Session(to_bytes(asked))
        return
    with tempfile.TemporaryDirectory(prefix="optcc-") as folder:
        path = Path(folder) / "model.onnx"
        write_model(asked, path, external_above=0)
        yield Session(path)


def weight_bytes(model: ir.Model) -> int:
    """Return the size of all initializers, subgraphs included; no data is read."""
    tensors = (v.const_value for g in all_graphs(model.graph) for v in g.initializers.values())
    return sum(t.nbytes for t in tensors if t is not None)


def with_outputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """Copy `model` with further outputs; their types are left to the runtime."""
    copy = model.clone()
    wanted = set(names) - {v.name for v in copy.graph.outputs}
    for node in copy.graph:
        for value in node.outputs:
            if value.name in wanted:
                value.type, value.shape = None, None
                copy.graph.outputs.append(value)
    return copy
