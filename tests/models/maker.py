"""Draw a graph from a seed: sizes, options and well-scaled weights, in one float type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch

__all__ = ["DTYPES", "Maker"]

DTYPES = {
    "float32": ir.DataType.FLOAT,
    "float16": ir.DataType.FLOAT16,
    "float64": ir.DataType.DOUBLE,
}


class Maker(Sketch):
    """A sketch whose choices follow from the seed alone.

    Attributes:
        dtype: Of all floats.
        taps: Inner values that may become outputs or get another reader.
    """

    def __init__(self, seed: int, dtype: str = "float32") -> None:
        super().__init__(seed=seed)
        self.dtype = np.dtype(dtype)
        self.type = DTYPES[dtype]
        self.taps: list[ir.Value] = []
        self._count = 0

    def flip(self, share: float = 0.5) -> bool:
        """Draw yes or no."""
        return bool(self.rng.random() < share)

    def pick(self, *choices: object) -> object:
        """Draw one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def size(self, low: int, high: int) -> int:
        """Draw a number from `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def kernel(self, *dims: int, fan: int | None = None) -> ir.Value:
        """A weight that keeps the scale of what it is applied to; `fan` terms are added up."""
        scale = 1.0 / np.sqrt(fan or max(1, int(np.prod(dims[1:]))))
        return self.floats(self.rng.standard_normal(dims) * scale)

    def vector(self, length: int, low: float = -1.0, high: float = 1.0) -> ir.Value:
        """Numbers between `low` and `high`, one per channel."""
        return self.floats(self.rng.uniform(low, high, length))

    def number(self, value: float) -> ir.Value:
        """One number."""
        return self.floats(np.array(value))

    def floats(self, array: np.ndarray) -> ir.Value:
        """A constant in the float type of the graph."""
        return self.constant(self._name("c"), np.asarray(array).astype(self.dtype))

    def ints(self, *numbers: int) -> ir.Value:
        """A vector of integers."""
        return self.integers(self._name("i"), *numbers)

    def op(self, op_type: str, *inputs: ir.Value | None, **options: object) -> ir.Value:  # type: ignore[override]
        """Add a node; its name is unique in all graphs."""
        options.setdefault("name", self._name(f"{op_type.lower()}_"))
        return super().op(op_type, *inputs, **options)  # type: ignore[arg-type]

    def several(self, count: int, op_type: str, *inputs: ir.Value | None, **options: object):
        """Add a node with more than one output and return all of them."""
        name = self._name(f"{op_type.lower()}_")
        names = [f"{name}_out{k}" for k in range(count)]
        first = self.op(op_type, *inputs, name=name, to=names, **options)
        node = first.producer()
        assert node is not None
        return list(node.outputs)

    def branch(self, build: Callable[[], ir.Value]) -> ir.Graph:
        """Build a nested graph without inputs."""
        outer, self.graph = self.graph, ir.Graph([], [], nodes=[], name=self._name("branch_"))
        known = len(self.taps)
        value = build()
        if value.producer() is None or value.producer().graph is not self.graph:
            value = self.op("Identity", value)
        value.type = ir.TensorType(self.type)
        self.graph.outputs.append(value)
        made, self.graph = self.graph, outer
        del self.taps[known:]  # nobody outside may read them
        return made

    def feed(self, dims: Sequence[int | str], name: str = "x") -> ir.Value:
        """An input of the graph in its float type."""
        return self.input(name, dims, self.type)

    def tap(self, value: ir.Value) -> ir.Value:
        """Offer an inner value to further readers."""
        self.taps.append(value)
        return value

    def finish(self, *results: ir.Value) -> ir.Model:
        """Make the outputs: the results, and sometimes inner values or other readers of them."""
        for value in results:
            self._make_output(value)
        for value in self.taps:
            if self.flip(0.15) and not value.is_graph_output():
                self._make_output(value)
            elif self.flip(0.15):
                self._make_output(self.op(str(self.pick("Abs", "Neg", "Tanh")), value))
        return self.model()

    def _make_output(self, value: ir.Value) -> None:
        if value.is_graph_output() or value.is_graph_input():
            value = self.op("Identity", value)
        value.name = f"y{len(self.graph.outputs)}"
        self.output(value, None, self.type)

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"
