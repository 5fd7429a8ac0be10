"""Bytes in and bytes out of the in-memory graph: the only module that touches protobuf."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["to_bytes"]


def to_bytes(model: ir.Model) -> bytes:
    """Serialize `model`, weights inline, the same bytes for the same graph."""
    proto = ir.to_proto(model)
    return bytes(proto.SerializeToString(deterministic=True))
