"""Load an ONNX file, or refuse it with one short sentence that names the node or tensor."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from optcc.errors import UnsupportedModelError
from optcc.frontends.soundness import check_sound, refuse_ambiguous_names
from optcc.graph import io
from optcc.graph.names import plan_renamings, rename
from optcc.graph.signature import Signature, signature_of
from optcc.graph.walk import all_nodes, graphs_of

__all__ = ["LoadedModel", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model as it came in: in order, free of local functions, its names made unique.

    Attributes:
        model: The live graph; weights are views of the model's files.
        signature: What callers rely on.
        name: Base name of the file.
        path: As the user gave it.
        sha256: Of the model file without its data files.
        nbytes: Of the model file and its external tensors.
        opset: Version of the default operator set.
        ir_version: Of the file format.
        nodes: Nested graphs included.
        parameters: Elements of all initializers and Constant nodes.
        rewritten: The graph is no longer what the file holds.
    """

    model: ir.Model
    signature: Signature
    name: str
    path: Path
    sha256: str
    nbytes: int
    opset: int
    ir_version: int
    nodes: int
    parameters: int
    rewritten: bool = False


def load(path: Path, *, data_root: Path | None = None) -> LoadedModel:
    """Read and check the ONNX file at `path`; the file is never written to.

    Args:
        path: The model file.
        data_root: A folder besides the model's own that external data may lie in.

    Raises:
        ConfigError: The file does not exist or cannot be read.
        UnsupportedModelError: The model is malformed, unsafe or not supported.
    """
    data = io.read_bytes(path)
    model = io.parse_model(data, path, data_root=data_root)
    _inline_functions(model)
    _free_negative_dims(model)
    _rename(model, ir.Node)
    refuse_ambiguous_names(model)
    _rename(model, ir.Value)
    check_sound(model)
    weights = list(_weights(model))
    outside = sum(t.nbytes for t in weights if isinstance(t, ir.Tensor | ir.PackedTensor))
    return LoadedModel(
        model=model,
        signature=signature_of(model),
        name=path.name,
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        nbytes=len(data) + outside,
        opset=model.opset_imports[""],
        ir_version=model.ir_version,
        nodes=sum(1 for _ in all_nodes(model.graph)),
        parameters=sum(math.prod(t.shape.numpy()) for t in weights),
    )


def _rename(model: ir.Model, kind: type[ir.Node] | type[ir.Value]) -> None:
    """Make the names of nodes, or of values, unique."""
    for renaming in plan_renamings(model):
        if isinstance(renaming.target, kind):
            rename(renaming)


def _inline_functions(model: ir.Model) -> None:
    if not model.functions:
        return
    from onnx_ir.passes.common import InlinePass

    try:
        InlinePass()(model)
    except (RuntimeError, ValueError, KeyError) as error:
        names = sorted(f.name for f in model.functions.values())
        raise UnsupportedModelError(
            f"the model-local functions {', '.join(names)} cannot be inlined: {error}"
        ) from error


def _free_negative_dims(model: ir.Model) -> None:
    """Read a dim of -1, as some exporters write it, as what it means: any size."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is not None and any(isinstance(d, int) and d < 0 for d in value.shape):
            value.shape = ir.Shape(
                [None if isinstance(d, int) and d < 0 else d for d in value.shape]
            )


def _weights(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in graphs_of(model):
        yield from (v.const_value for v in graph.initializers.values() if v.const_value is not None)
        for node in graph:
            if node.op_type == "Constant" and "value" in node.attributes:
                yield node.attributes["value"].as_tensor()
