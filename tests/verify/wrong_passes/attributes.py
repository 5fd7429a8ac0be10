"""A node made again with one attribute lost or wrong."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import any_, const, one_of, op, scalar
from tests.verify.wrong_passes.faulty import Faulty, at, changed_constant, constant, one, remade

__all__ = ["attribute_faults"]


def _ints(m: Match, name: str, default: int = 1) -> list[int]:
    return list(m.root.attributes.get_ints(name) or [default] * 2)


def _reset(**changes: object):
    return lambda m, graph: remade(m.root, **changes).outputs[0]


def _shifted_pads(m: Match, graph: ir.Graph) -> ir.Value:
    top, left, bottom, right = _ints(m, "pads", 0)
    return remade(m.root, pads=[top - 1, left, bottom + 1, right]).outputs[0]


def _group_dropped(m: Match, graph: ir.Graph) -> ir.Value:
    """Sum what each input channel gives under the first filter: one group for all."""
    w = constant_of(m.root.inputs[1])
    assert w is not None
    full = np.repeat(w, m.root.attributes.get_int("group"), axis=1) / np.float32(w.shape[0])
    weight = constant(graph, full.astype(w.dtype))
    return remade(m.root, at(m.root, 1, weight), group=1).outputs[0]


def _dilation_ignored(m: Match, graph: ir.Graph) -> ir.Value:
    pads = [p // 2 for p in m.root.attributes.get_ints("pads") or [0] * 4]
    return remade(m.root, dilations=[1, 1], pads=pads).outputs[0]


def _stride_as_slice(m: Match, graph: ir.Graph) -> ir.Value:
    """Compute densely and take every second result, begun one too late where that fits."""
    pads = _ints(m, "pads", 0) if m.root.attributes.get_ints("pads") else [0] * 4
    return remade(m.root, pads=[pads[2], pads[3], pads[0], pads[1]], strides=[1, 2]).outputs[0]


def _average(m: Match, graph: ir.Graph) -> ir.Value:
    return one(
        "AveragePool",
        m.root.inputs[0],
        kernel_shape=_ints(m, "kernel_shape"),
        strides=_ints(m, "strides"),
    )


def _without_bias(m: Match, graph: ir.Graph) -> ir.Value:
    return remade(m.root, m.root.inputs[:2]).outputs[0]


def _square(m: Match) -> bool:
    w = constant_of(m.root.inputs[1])
    return (
        w is not None and w.shape[0] == w.shape[1] and bool(m.root.attributes.get_int("transB", 0))
    )


def _norm_axis(m: Match, graph: ir.Graph) -> ir.Value:
    """Normalize over the axis before the last one."""
    x = m.root.inputs[0]
    turn = {"perm": [0, 2, 1]}
    parts = [constant(graph, np.ones(1, x.dtype.numpy()))]
    norm = one("LayerNormalization", one("Transpose", x, **turn), *parts, axis=-1)
    scaled = one("Mul", one("Transpose", norm, **turn), m.root.inputs[1])
    return one("Add", scaled, m.root.inputs[2])


_CENTRED = op("Sub", any_("x"), op("ReduceMean", any_("x"), const("axes")))
_SQUARED = one_of(op("Mul", _CENTRED, _CENTRED), op("Pow", _CENTRED, scalar(2.0)))
_SPREAD = op("Sqrt", op("Add", op("ReduceMean", _SQUARED, const("axes")), const("eps")))
_NORM = op("Add", op("Mul", op("Div", _CENTRED, _SPREAD), const("gamma")), const("beta"))


def _norm(m: Match, graph: ir.Graph) -> ir.Value:
    """A decomposed LayerNormalization as one node that forgets its epsilon."""
    parts = [m.value("x"), m.value("gamma"), m.value("beta")]
    return one("LayerNormalization", *parts, axis=-1, epsilon=0.05)


def _in_training(m: Match, graph: ir.Graph) -> ir.Value:
    x, gamma, beta, _, var = m.root.inputs
    zero = constant(graph, np.zeros_like(constant_of(var)))
    return remade(m.root, [x, gamma, beta, zero, var]).outputs[0]


def attribute_faults() -> list[Faulty]:
    """Make all of them."""
    grouped = lambda m: m.root.attributes.get_int("group", 1) > 1  # noqa: E731
    return [
        Faulty("conv-pads-shifted", "Conv", _shifted_pads, lambda m: _ints(m, "pads", 0)[0] > 0),
        Faulty("conv-group-dropped", "Conv", _group_dropped, grouped),
        Faulty(
            "conv-dilation-ignored",
            "Conv",
            _dilation_ignored,
            lambda m: _ints(m, "dilations")[0] > 1,
        ),
        Faulty(
            "conv-stride-other-axis", "Conv", _stride_as_slice, lambda m: _ints(m, "strides")[0] > 1
        ),
        Faulty("conv-bias-dropped", "Conv", _without_bias, lambda m: len(m.root.inputs) > 2),
        Faulty("maxpool-as-average", "MaxPool", _average),
        Faulty(
            "gemm-alpha-dropped", "Gemm", _reset(alpha=None), lambda m: "alpha" in m.root.attributes
        ),
        Faulty(
            "gemm-beta-dropped", "Gemm", _reset(beta=None), lambda m: "beta" in m.root.attributes
        ),
        Faulty("gemm-transb-dropped", "Gemm", _reset(transB=0), _square),
        Faulty("gemm-bias-dropped", "Gemm", _without_bias, lambda m: len(m.root.inputs) > 2),
        Faulty("bn-mean-forgotten", "BatchNormalization", _in_training),
        Faulty("softmax-axis", "Softmax", _reset(axis=1)),
        Faulty(
            "layernorm-axis",
            "LayerNormalization",
            _norm_axis,
            lambda m: "wrong" not in (m.root.name or ""),
        ),
        Faulty("layernorm-fused-other-epsilon", _NORM, _norm),
        Faulty("layernorm-epsilon-default", "LayerNormalization", _reset(epsilon=1e-6)),
        Faulty("leakyrelu-slope-default", "LeakyRelu", _reset(alpha=None)),
        Faulty(
            "concat-axis-order",
            "Concat",
            lambda m, g: remade(m.root, m.root.inputs[::-1]).outputs[0],
        ),
        changed_constant("pad-value", "Pad", 2, lambda a: a + 1, lambda m: m.root.op_type == "Pad"),
        changed_constant(
            "pad-shifted", "Pad", 1, lambda a: a + np.array([0, 0, 1, 0, 0, 0, -1, 0])
        ),
        changed_constant("gather-off-by-one", "Gather", 1, lambda a: np.maximum(a - 1, 0)),
        changed_constant("slice-off-by-one", "Slice", 1, lambda a: a + 1),
    ]
