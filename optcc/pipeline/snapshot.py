"""Keep a model as it is, and bring it back into the same model object."""

from __future__ import annotations

import onnx_ir as ir

from optcc.graph.io import clone

__all__ = ["restore", "take"]


def take(model: ir.Model) -> ir.Model:
    """Copy nodes and values of `model`; weights are shared."""
    return clone(model)


def restore(model: ir.Model, snapshot: ir.Model) -> None:
    """Make `model` what `snapshot` is; the snapshot can be used again."""
    fresh = clone(snapshot)
    model.graph = fresh.graph
    model.ir_version = fresh.ir_version
    model.functions.clear()
    model.functions.update(fresh.functions)
    model.metadata_props.clear()
    model.metadata_props.update(fresh.metadata_props)
