"""Input gradients by finite differences, in double: do two graphs change alike?

A rewrite that keeps the function keeps its gradients, and whoever trains through the rewritten
graph depends on that. Both graphs are widened to double and run by the reference evaluator of the
`onnx` package, because the runtime has no double kernels for many operators on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from optcc.graph.io import clone, to_bytes
from optcc.graph.walk import graphs_of
from optcc.passkit.contract import Feed

__all__ = ["Gradients", "gradient_error", "input_gradients", "widened"]

_STEP = 1e-5
_MOST_PLACES = 12
_NARROW = (ir.DataType.FLOAT, ir.DataType.FLOAT16)

Gradients = dict[str, np.ndarray]
"""By input: central differences at the chosen places, in order."""


@dataclass(frozen=True)
class _Functional:
    """A random linear functional of all outputs: its value is one number."""

    weights: Feed

    def __call__(self, outputs: Feed) -> float:
        return float(sum(np.vdot(self.weights[n], outputs[n]) for n in self.weights))


def gradient_error(before: ir.Model, after: ir.Model, feed: Feed, seed: int = 0) -> float:
    """Return the largest difference of two gradients over the largest gradient of that input.

    Args:
        before: The original.
        after: Has the same inputs and outputs.
        feed: Where to differentiate; floats are taken as double.
        seed: Decides the functional and the places.
    """
    wanted = input_gradients(before, feed, seed)
    got = input_gradients(after, feed, seed)
    errors = [0.0]
    for name, array in wanted.items():
        scale = float(np.abs(array).max(initial=0.0)) or 1.0
        errors.append(float(np.abs(array - got[name]).max(initial=0.0)) / scale)
    return max(errors)


def input_gradients(model: ir.Model, feed: Feed, seed: int = 0) -> Gradients:
    """Differentiate a random linear functional of the outputs with respect to each float input.

    At most 12 elements of each input are moved, chosen by `seed`.
    """
    rng = np.random.default_rng(seed)
    run = _Evaluator(model)
    point = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feed.items()}
    outputs = run(point)
    functional = _Functional({n: rng.standard_normal(a.shape) for n, a in outputs.items()})
    gradients: Gradients = {}
    for name in [n for n, a in point.items() if a.dtype.kind == "f"]:
        count = min(_MOST_PLACES, point[name].size)
        places = rng.choice(point[name].size, count, replace=False)
        slopes = [_slope(run, functional, point, name, int(k)) for k in places]
        gradients[name] = np.array(slopes)
    return gradients


def _slope(run: _Evaluator, functional: _Functional, point: Feed, name: str, place: int) -> float:
    sides = []
    for step in (_STEP, -_STEP):
        moved = point[name].copy()
        moved.reshape(-1)[place] += step
        sides.append(functional(run({**point, name: moved})))
    return (sides[0] - sides[1]) / (2 * _STEP)


class Erf(OpRun):
    """In double; the evaluator's own returns single precision."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.vectorize(math.erf, otypes=[np.float64])(x),)


class Gelu(OpRun):
    """In double, for the same reason."""

    op_domain = ""

    def _run(self, x: np.ndarray, approximate: str | None = None) -> tuple[np.ndarray]:
        if (approximate or self.approximate) == "tanh":
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            return (0.5 * x * (1 + np.tanh(inner)),)
        erf = np.vectorize(math.erf, otypes=[np.float64])
        return (0.5 * x * (1 + erf(x / math.sqrt(2))),)


class _Evaluator:
    """A model in double under the reference evaluator."""

    def __init__(self, model: ir.Model) -> None:
        self._names = [v.name or "" for v in model.graph.outputs]
        proto = onnx.load_from_string(to_bytes(widened(model)))
        self._evaluator = ReferenceEvaluator(proto, new_ops=[Erf, Gelu])

    def __call__(self, feed: Feed) -> Feed:
        results: Sequence[np.ndarray] = self._evaluator.run(self._names, feed)
        return dict(zip(self._names, results, strict=True))


def widened(model: ir.Model) -> ir.Model:
    """Copy a model with every narrower float made double; the numbers stay what they are."""
    copy = clone(model)
    for graph in graphs_of(copy):
        for value in graph.initializers.values():
            if value.const_value is not None and value.dtype in _NARROW:
                wide = value.const_value.numpy().astype(np.float64)
                value.const_value = ir.tensor(wide, name=value.name)
        values = [*graph.inputs, *graph.initializers.values()]
        values += [v for n in graph for v in n.outputs]
        for value in values:
            if value.dtype in _NARROW:
                value.type = ir.TensorType(ir.DataType.DOUBLE)
        for node in graph:
            _widen_attributes(node)
    return copy


def _widen_attributes(node: ir.Node) -> None:
    for attribute in list(node.attributes.values()):
        if attribute.name == "to" and attribute.value in _NARROW:
            node.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.DOUBLE))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in _NARROW:
            wide = ir.tensor(attribute.value.numpy().astype(np.float64))
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, wide)
