"""A digest of what a model computes, whatever file layout it came in."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

from optcc.graph.io import to_bytes, without_weights
from optcc.graph.walk import graphs_of

__all__ = ["digest"]

_CHUNK = 1 << 24


def digest(model: ir.Model) -> str:
    """Return the sha256 of nodes, values and weights as hex digits.

    Weights enter as their bytes, so it does not matter whether they lie inside the model file.
    """
    total = hashlib.sha256()
    for graph in graphs_of(model):
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                total.update(f"{name} {value.const_value.dtype} {value.const_value.shape}".encode())
                total.update(_content(value.const_value))
    total.update(to_bytes(without_weights(model, keep_bytes=-1)))
    return total.hexdigest()


def _content(tensor: ir.TensorProtocol) -> bytes:
    content = hashlib.sha256()
    data = memoryview(tensor.tobytes())
    for start in range(0, len(data), _CHUNK):
        content.update(data[start : start + _CHUNK])
    return content.digest()
