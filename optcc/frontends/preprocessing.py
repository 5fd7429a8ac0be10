"""Put the normalization of the input into the graph, so that callers hand over raw pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from optcc.config.preprocessing import Preprocessing
from optcc.errors import ConfigError
from optcc.frontends.onnx_file import LoadedModel
from optcc.graph.edit import add_constant, fresh_name
from optcc.graph.shapes import infer_shapes
from optcc.graph.signature import signature_of
from optcc.graph.walk import all_nodes

__all__ = ["with_preprocessing"]

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE})


def with_preprocessing(loaded: LoadedModel, wanted: Preprocessing) -> LoadedModel:
    """Return the model with `wanted` in front of its input; the graph of `loaded` is changed.

    The input keeps its name and dims; its type becomes what callers hand over. What comes after
    this compares with the model as it is then.

    Raises:
        ConfigError: There is not one float input to normalize, or its channels do not fit.
    """
    model = loaded.model
    value = _input(model)
    axis = _channel_axis(value, wanted)
    dtype = ir.DataType[wanted.dtype.upper().replace("FLOAT32", "FLOAT")] if wanted.dtype else None
    raw = ir.Value(
        name=value.name, shape=value.shape, type=ir.TensorType(dtype or value.dtype or _FLOAT)
    )
    value.name = fresh_name(model.graph, f"{raw.name}.normalized")
    nodes = _nodes(model.graph, raw, value, wanted, axis)
    graph = model.graph
    graph.inputs[list(graph.inputs).index(value)] = raw
    value.replace_all_uses_with(nodes[-1].outputs[0])
    graph.insert_before(graph[0], nodes)
    infer_shapes(model)
    count = sum(1 for _ in all_nodes(graph))
    return replace(loaded, signature=signature_of(model), nodes=count, rewritten=True)


_FLOAT = ir.DataType.FLOAT


def _input(model: ir.Model) -> ir.Value:
    graph = model.graph
    found = [v for v in graph.inputs if v.name not in graph.initializers and v.dtype in _FLOATS]
    if len(found) != 1:
        names = ", ".join(repr(v.name) for v in found) or "none"
        raise ConfigError(f"preprocessing needs one float input; the model has {names}")
    if found[0].is_graph_output():
        raise ConfigError(f"input {found[0].name!r} is also an output, it cannot be preprocessed")
    return found[0]


def _channel_axis(value: ir.Value, wanted: Preprocessing) -> int | None:
    """Return the axis of the channels; None when no option needs it."""
    if wanted.channels == 1 and not wanted.swap:
        return None
    dims = [] if value.shape is None else list(value.shape)
    count = wanted.channels if wanted.channels > 1 else 3
    axes = [a for a in (1, len(dims) - 1) if 0 < a < len(dims) and dims[a] == count]
    if axes:
        return axes[0]
    shown = "x".join(map(str, dims)) or "unknown"
    raise ConfigError(
        f"input {value.name!r} has dims {shown}: neither axis 1 nor the last has {count} channels"
    )


def _nodes(
    graph: ir.Graph, raw: ir.Value, value: ir.Value, wanted: Preprocessing, axis: int | None
) -> list[ir.Node]:
    """Return Cast, Gather, Sub, Mul as far as needed: (x - mean / scale) * (scale / std)."""
    target = value.dtype or _FLOAT
    made: list[ir.Node] = []

    def add(op_type: str, inputs: Sequence[ir.Value], **attributes: int) -> None:
        attrs = [ir.AttrInt64(k, v) for k, v in attributes.items()]
        node = ir.Node("", op_type, inputs, attrs, name=f"{raw.name}.{op_type.lower()}")
        node.outputs[0].name = fresh_name(graph, f"{raw.name}.{op_type.lower()}")
        node.outputs[0].type = ir.TensorType(target)
        made.append(node)

    def last() -> ir.Value:
        return made[-1].outputs[0] if made else raw

    if raw.dtype is not target:
        add("Cast", [raw], to=int(target))
    if wanted.swap and axis is not None and value.shape is not None:
        order = np.arange(int(value.shape[axis]))[::-1].astype(np.int64)  # type: ignore[arg-type]
        add("Gather", [last(), add_constant(graph, f"{raw.name}.order", order)], axis=axis)
    mean, factor = _constants(wanted, value, axis)
    if mean.any():
        add("Sub", [last(), add_constant(graph, f"{raw.name}.mean", mean)])
    if (factor != 1).any() or not made:
        add("Mul", [last(), add_constant(graph, f"{raw.name}.factor", factor)])
    return made


def _constants(
    wanted: Preprocessing, value: ir.Value, axis: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean / scale and scale / std, in a shape that broadcasts along the channels."""
    mean = np.array(wanted.mean or (0.0,)) / wanted.scale
    factor = wanted.scale / np.array(wanted.std or (1.0,))
    rank = 0 if value.shape is None else value.shape.rank()
    after = 0 if axis is None else rank - 1 - axis
    dtype = (value.dtype or _FLOAT).numpy()
    return tuple(  # type: ignore[return-value]
        (a.reshape(()) if a.size == 1 else a.reshape(-1, *[1] * after)).astype(dtype)
        for a in (mean, factor)
    )
