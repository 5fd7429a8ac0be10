"""What is known of small integer tensors that are made of dims: Shape, Gather, Concat and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant

__all__ = ["Dim", "DimTracer", "Elements"]

_MOST_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class Dim:
    """One dim of a value that is not known as a number.

    Attributes:
        symbol: Its name where that name stands for one size, else None.
    """

    value: ir.Value
    axis: int
    symbol: str | None

    def same_as(self, other: Dim) -> bool:
        """Tell whether both are one size in every run."""
        if self.value is other.value and self.axis == other.axis:
            return True
        return self.symbol is not None and self.symbol == other.symbol


Element = int | Dim | None


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of an integer tensor of rank 0 or 1; None where nothing is known."""

    items: tuple[Element, ...]
    rank: int

    def numbers(self) -> list[int] | None:
        """Return the elements when all are known."""
        known = [k for k in self.items if isinstance(k, int)]
        return known if len(known) == len(self.items) else None


@dataclass(slots=True)
class DimTracer:
    """What dims became in the nodes of one model, outer graphs first, in graph order.

    Args:
        model: Shapes must be inferred, not read from the file.
    """

    model: ir.Model
    known: dict[ir.Value, Elements] = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        inputs = self.model.graph.inputs
        dims = [d for v in inputs if v.shape is not None for d in v.shape if not isinstance(d, int)]
        counts = Counter(d.value for d in dims if d.value)
        self.ambiguous = frozenset(name for name, count in counts.items() if count > 1)
        for graph in self.model.graphs():
            for node in graph:
                self._visit(node)

    def _visit(self, node: ir.Node) -> None:
        """Learn what the first output of `node` holds."""
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain != "" or any(a.is_ref() for a in node.attributes.values()):
            return
        found = rule(self, node)
        if found is not None and len(found.items) <= _MOST_ELEMENTS:
            self.known[node.outputs[0]] = found

    def elements(self, value: ir.Value | None) -> Elements | None:
        """Return what is known of `value`."""
        if value is None:
            return None
        return self.known[value] if value in self.known else _of_constant(value)

    def sources(self, value: ir.Value) -> tuple[ir.Value, ...]:
        """Return the values whose dims or elements `value` is computed from, each once."""
        found: dict[ir.Value, None] = {}
        pending, seen = [value], {value}
        while pending:
            current = pending.pop()
            producer = current.producer()
            if producer is None or current not in self.known:
                found[current] = None
                continue
            if producer.op_type in ("Shape", "Size"):
                found.update(dict.fromkeys(v for v in producer.inputs if v is not None))
                continue
            fresh = [v for v in producer.inputs if v is not None and v not in seen]
            seen.update(fresh)
            pending.extend(reversed(fresh))
        return tuple(v for v in found if not is_constant(v))

    def dim(self, value: ir.Value, axis: int) -> Element:
        """Return one dim of `value`: a number, or what it is called."""
        assert value.shape is not None
        dim = value.shape[axis]
        if isinstance(dim, int):
            return None if _is_declared_only(value) else dim
        trusted = bool(dim.value) and dim.value not in self.ambiguous
        return Dim(value, axis, dim.value if trusted and not _is_declared_only(value) else None)


def _is_declared_only(value: ir.Value) -> bool:
    """Graph outputs keep the shape that the file declares, which nobody checked."""
    return value.is_graph_output() and not value.is_graph_input()


def _of_constant(value: ir.Value) -> Elements | None:
    if value.shape is None or value.shape.rank() > 1 or value.dtype not in _INTEGERS:
        return None
    if any(not isinstance(d, int) or d > _MOST_ELEMENTS for d in value.shape):
        return None
    array = constant_of(value)
    if array is None:
        return None
    return Elements(tuple(int(k) for k in array.reshape(-1)), array.ndim)


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _shape(tracer: DimTracer, node: ir.Node) -> Elements | None:
    value = node.inputs[0]
    if value is None or value.shape is None:
        return None
    axes = range(value.shape.rank())
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(axes))
    return Elements(tuple(tracer.dim(value, k) for k in axes[start:end]), 1)


def _size(tracer: DimTracer, node: ir.Node) -> Elements | None:
    shape = _shape(tracer, node)
    numbers = None if shape is None else shape.numbers()
    return None if numbers is None else Elements((int(np.prod(numbers, dtype=np.int64)),), 0)


def _gather(tracer: DimTracer, node: ir.Node) -> Elements | None:
    data, index = (tracer.elements(_input(node, k)) for k in (0, 1))
    if data is None or index is None or data.rank != 1:
        return None
    places = index.numbers()
    count = len(data.items)
    if places is None or any(not -count <= k < count for k in places):
        return None
    return Elements(tuple(data.items[k] for k in places), index.rank)


def _slice(tracer: DimTracer, node: ir.Node) -> Elements | None:
    data = tracer.elements(node.inputs[0])
    bounds = [tracer.elements(_input(node, k)) for k in (1, 2, 4)]
    numbers = [None if b is None else b.numbers() for b in bounds]
    if data is None or data.rank != 1 or numbers[0] is None or numbers[1] is None:
        return None
    if numbers[2] is None and _input(node, 4) is not None:
        return None
    step = numbers[2][0] if numbers[2] else 1
    if step <= 0 or len(numbers[0]) != 1 or len(numbers[1]) != 1:
        return None
    return Elements(data.items[numbers[0][0] : numbers[1][0] : step], 1)


def _concat(tracer: DimTracer, node: ir.Node) -> Elements | None:
    parts = [tracer.elements(v) or _unknown(v) for v in node.inputs]
    if any(p is None or p.rank != 1 for p in parts):
        return None
    return Elements(tuple(item for p in parts if p is not None for item in p.items), 1)


def _unknown(value: ir.Value | None) -> Elements | None:
    """Return elements without content for a vector of known length."""
    if value is None or value.shape is None or value.shape.rank() != 1:
        return None
    length = value.shape[0]
    usable = isinstance(length, int) and not value.is_graph_output()
    return Elements((None,) * length, 1) if usable and isinstance(length, int) else None


def _same(tracer: DimTracer, node: ir.Node) -> Elements | None:
    return tracer.elements(node.inputs[0])


def _cast(tracer: DimTracer, node: ir.Node) -> Elements | None:
    keeps = node.attributes.get_int("to", 0) in (ir.DataType.INT64, ir.DataType.INT32)
    return tracer.elements(node.inputs[0]) if keeps else None


def _to_scalar(tracer: DimTracer, node: ir.Node) -> Elements | None:
    data = tracer.elements(node.inputs[0])
    return Elements(data.items, 0) if data is not None and len(data.items) == 1 else None


def _to_vector(tracer: DimTracer, node: ir.Node) -> Elements | None:
    data, axes = tracer.elements(node.inputs[0]), tracer.elements(_input(node, 1))
    single = axes is not None and len(axes.items) == 1
    return Elements(data.items, 1) if data is not None and data.rank == 0 and single else None


def _arithmetic(compute: Callable[[int, int], int | None]) -> Rule:
    def rule(tracer: DimTracer, node: ir.Node) -> Elements | None:
        left, right = (tracer.elements(v) for v in node.inputs[:2])
        if left is None or right is None:
            return None
        count = max(len(left.items), len(right.items))
        if any(len(side.items) not in (1, count) for side in (left, right)):
            return None
        pairs = zip(_stretch(left.items, count), _stretch(right.items, count), strict=True)
        items = [_combine(compute, a, b) for a, b in pairs]
        return Elements(tuple(items), max(left.rank, right.rank))

    return rule


def _stretch(items: Sequence[Element], count: int) -> Sequence[Element]:
    return items if len(items) == count else tuple(items) * count


def _combine(compute: Callable[[int, int], int | None], a: Element, b: Element) -> Element:
    return compute(a, b) if isinstance(a, int) and isinstance(b, int) else None


def _divide(a: int, b: int) -> int | None:
    return a // b if a >= 0 and b > 0 else None


def _product(tracer: DimTracer, node: ir.Node) -> Elements | None:
    data = tracer.elements(node.inputs[0])
    numbers = None if data is None else data.numbers()
    if numbers is None or _input(node, 1) is not None or "axes" in node.attributes:
        return None
    rank = 1 if node.attributes.get_int("keepdims", 1) else 0
    return Elements((int(np.prod(numbers, dtype=np.int64)),), rank)


_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)

Rule = Callable[[DimTracer, ir.Node], Elements | None]

_RULES: Mapping[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Identity": _same,
    "Cast": _cast,
    "Squeeze": _to_scalar,
    "Unsqueeze": _to_vector,
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_divide),
    "ReduceProd": _product,
}
