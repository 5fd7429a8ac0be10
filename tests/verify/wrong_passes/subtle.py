"""Faults that show only for some inputs, at one place, or by a small amount."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.shapes import known_rank, static_dims
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, op
from tests.verify.wrong_passes.faulty import (
    Faulty,
    changed_constant,
    constant,
    number_like,
    one,
    remade,
)

__all__ = ["subtle_faults"]

_LAYERS = ("Conv", "Gemm", "MatMul")


def _again(m: Match) -> ir.Value:
    value = remade(m.root).outputs[0]
    value.type, value.shape = m.root.outputs[0].type, m.root.outputs[0].shape
    return value


def _spoilt_where(m: Match, graph: ir.Graph, condition: ir.Value, value: ir.Value) -> ir.Value:
    off = one("Mul", value, number_like(graph, m.root.outputs[0], 1.05))
    return one("Where", condition, off, value)


def _if_large(m: Match, graph: ir.Graph) -> ir.Value:
    value = _again(m)
    far = one("Greater", one("Abs", value), number_like(graph, m.root.outputs[0], 3.0))
    return _spoilt_where(m, graph, far, value)


def _if_negative(m: Match, graph: ir.Graph) -> ir.Value:
    value = _again(m)
    below = one("Less", value, number_like(graph, m.root.outputs[0], 0.0))
    return _spoilt_where(m, graph, below, value)


def _if_input_large(m: Match, graph: ir.Graph) -> ir.Value:
    """Right while every input stays within 3."""
    x = m.root.inputs[0]
    most = one("ReduceMax", one("Abs", x), keepdims=0)
    far = one("Greater", most, number_like(graph, x, 3.0))
    return _spoilt_where(m, graph, far, _again(m))


def _if_batch(m: Match, graph: ir.Graph) -> ir.Value:
    """Right for batch 1."""
    value = _again(m)
    batch = one("Gather", one("Shape", value), constant(graph, np.array(0, np.int64)))
    many = one("Greater", batch, constant(graph, np.array(1, np.int64)))
    return _spoilt_where(m, graph, many, value)


def _at_last(m: Match, graph: ir.Graph) -> ir.Value:
    """Right everywhere but at the last place of the last axis."""
    size = _last(m)
    assert size is not None
    last = constant(graph, np.arange(size) == size - 1)
    return _spoilt_where(m, graph, last, _again(m))


def _at_last_sample(m: Match, graph: ir.Graph) -> ir.Value:
    """Right in every sample but the last one of a batch of at least two."""
    value = _again(m)
    zero, step = constant(graph, np.array(0, np.int64)), constant(graph, np.array(1, np.int64))
    batch = one("Gather", one("Shape", value), zero)
    places = one("Range", zero, batch, step)
    rank = known_rank(m.root.outputs[0]) or 2
    dims = constant(graph, np.array([-1] + [1] * (rank - 1), np.int64))
    late = one("Greater", one("Reshape", places, dims), zero)
    last = one("Equal", one("Reshape", places, dims), one("Sub", batch, step))
    return _spoilt_where(m, graph, one("And", late, last), value)


def _last(m: Match) -> int | None:
    shape = m.root.outputs[0].shape
    dim = shape.dims[-1] if shape is not None and shape.rank() else None
    return dim if isinstance(dim, int) else None


def _free_batch(m: Match) -> bool:
    return (known_rank(m.root.outputs[0]) or 0) >= 2 and static_dims(m.root.outputs[0]) is None


def _scaled(share: float):
    return lambda a: a * (1 + share)


def _element(a: np.ndarray) -> np.ndarray:
    a.reshape(-1)[a.size // 2] += np.abs(a).max()
    return a


def _last_one(a: np.ndarray) -> np.ndarray:
    a.reshape(-1)[-1] = 0
    return a


def _float(m: Match) -> bool:
    dtype = m.root.outputs[0].dtype
    return dtype is not None and dtype.is_floating_point() and not _only_constants(m)


def _only_constants(m: Match) -> bool:
    return not m.inputs


def _reciprocal(m: Match, graph: ir.Graph) -> ir.Value:
    """x / k as x * (1 / k), with one digit too few."""
    k = m.root.inputs[1].const_value.numpy().astype(np.float64)
    short = np.asarray(np.round(1.0 / k, 2)).astype(m.root.inputs[1].dtype.numpy())
    return one("Mul", m.root.inputs[0], constant(graph, short))


def _saturated(m: Match, graph: ir.Graph) -> ir.Value:
    """A Tanh or Sigmoid that is cut off early."""
    x = m.root.inputs[0]
    low, high = number_like(graph, x, -4.0), number_like(graph, x, 4.0)
    return remade(m.root, [one("Clip", x, low, high)]).outputs[0]


def subtle_faults() -> list[Faulty]:
    """Make all of them."""
    return [
        Faulty("only-large-results", _LAYERS, _if_large),
        Faulty("only-negative-results", _LAYERS, _if_negative),
        Faulty("only-large-inputs", _LAYERS, _if_input_large, _float),
        Faulty("only-batch-above-one", _LAYERS, _if_batch, _free_batch),
        Faulty("only-last-position", _LAYERS, _at_last, lambda m: _last(m) is not None),
        Faulty("only-last-sample", ("Add", *_LAYERS), _at_last_sample, _free_batch),
        Faulty("tanh-cut-off", ("Tanh", "Sigmoid"), _saturated),
        Faulty(
            "division-rounded",
            op("Div", any_("x"), any_("k")),
            _reciprocal,
            lambda m: m.root.inputs[1].const_value is not None and _float(m),
        ),
        changed_constant("weight-one-percent", _LAYERS, 1, _scaled(0.01)),
        changed_constant("weight-one-element", _LAYERS, 1, _element),
        changed_constant("bias-last-dropped", ("Conv", "Gemm"), 2, _last_one),
        changed_constant("constant-one-percent", ("Add", "Mul", "Sub"), 1, _scaled(0.01), _float),
        changed_constant(
            "weight-through-half",
            _LAYERS,
            1,
            lambda a: a.astype(np.float16),
            lambda m: m.root.inputs[1].dtype == ir.DataType.FLOAT,
        ),
    ]
