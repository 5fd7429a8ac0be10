"""Let a model give a few elements of its inner values instead of all of them.

One run then shows every value of a large model, while the runtime still reuses its buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, fresh_name
from optcc.graph.walk import taken_names

__all__ = ["LEAST_OPSET", "Sampled", "with_samples"]

LEAST_OPSET = 13
"""Before it Slice and Max do not take what is written here."""

_END = np.iinfo(np.int64).max


@dataclass(slots=True)
class Sampled:
    """A model with two more outputs for each value: its dims and evenly spread elements.

    Attributes:
        model: A copy.
        outputs: By value: the names of dims and elements.
    """

    model: ir.Model
    outputs: dict[str, tuple[str, str]] = field(default_factory=dict)


def with_samples(model: ir.Model, names: Sequence[str], floats: int, others: int) -> Sampled:
    """Return a copy of `model` that samples the inner values `names`.

    Args:
        model: It is not changed; opset `LEAST_OPSET` or later.
        names: Values of the main graph.
        floats: A value of a float or unknown type gives at least this many elements if it has
            them, and less than twice as many.
        others: The same for integers and bools.
    """
    made = Sampled(model.clone())
    graph, wanted = made.model.graph, set(names)
    writer = _Writer(graph, {"floats": floats, "others": others})
    for node in list(graph):
        for value in node.outputs:
            if value.name in wanted:
                made.outputs[value.name] = writer.sample(value)
    return made


class _Writer:
    """Adds the nodes; all share their constants."""

    def __init__(self, graph: ir.Graph, limits: dict[str, int]) -> None:
        self._graph = graph
        self._taken = taken_names(graph)
        numbers = {"zero": 0, "one": 1, "flat": -1, "end": _END, **limits}
        self._constants = {k: self._constant(k, n) for k, n in numbers.items()}

    def _constant(self, name: str, number: int) -> ir.Value:
        array = np.array([number], np.int64)
        return add_constant(self._graph, f"sampling.{name}", array, self._taken)

    def sample(self, value: ir.Value) -> tuple[str, str]:
        """Add outputs for `value` and return their names."""
        producer = value.producer()
        assert producer is not None
        known, self._last = self._constants, producer
        kind = "floats" if value.dtype is None or value.dtype.is_floating_point() else "others"
        name = value.name or ""
        dims = self._add("Shape", [value], f"{name}.dims")
        flat = self._add("Reshape", [value, known["flat"]], f"{name}.flat")
        size = self._add("Shape", [flat], f"{name}.size")
        ratio = self._add("Div", [size, known[kind]], f"{name}.ratio")
        step = self._add("Max", [ratio, known["one"]], f"{name}.step")
        inputs = [flat, known["zero"], known["end"], known["zero"], step]
        some = self._add("Slice", inputs, f"{name}.some")
        self._graph.outputs.extend([dims, some])
        return dims.name or "", some.name or ""

    def _add(self, op_type: str, inputs: Sequence[ir.Value], name: str) -> ir.Value:
        """Add a node right behind what it reads, so that this is soon free again."""
        unique = fresh_name(self._graph, name, self._taken)
        node = ir.Node("", op_type, inputs, name=unique)
        node.outputs[0].name = unique
        self._graph.insert_after(self._last, node)
        self._last = node
        return node.outputs[0]
