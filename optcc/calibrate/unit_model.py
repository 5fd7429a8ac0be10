"""One quantization unit as a small model of its own, with its weight as an input."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.calibrate.rounding import rounded_weight
from optcc.graph.edit import constant_of
from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import PerAxis, QuantUnit
from optcc.runtime.session import Session

__all__ = ["UnitModel", "entering_values", "multiplications"]


_IR_VERSION = 10


def entering_values(nodes: list[ir.Node]) -> list[ir.Value]:
    """Return what `nodes` read, is not constant and is made outside of them, each once."""
    made = {v for n in nodes for v in n.outputs}
    read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None)
    return [v for v in read if v not in made and constant_of(v) is None]


def multiplications(model: ir.Model, unit: QuantUnit, elements: int) -> int:
    """Estimate the multiplications of a unit that gives `elements` numbers."""
    weight = model.graph.initializers.get(unit.weight or "")
    if weight is None or weight.const_value is None or not weight.const_value.size:
        return elements
    shape = weight.const_value.shape.numpy()
    channels = shape[unit.granularity.axis] if isinstance(unit.granularity, PerAxis) else shape[0]
    return int(elements * max(1, weight.const_value.size // channels))


class UnitModel:
    """Runs the nodes of a unit with the float or with the rounded weight.

    Args:
        model: The float model; it is not changed.
        nodes: The nodes of the unit, in order.
        unit: What the plan says about them.
        typical: Arrays of the entering values, for their types.

    Attributes:
        entering: Names of the values that must be fed.
    """

    def __init__(
        self, model: ir.Model, nodes: list[ir.Node], unit: QuantUnit, typical: Feed
    ) -> None:
        self._unit = unit
        self.entering = tuple(v.name or "" for v in entering_values(nodes))
        self._weight = self._weight_of(model)
        self._rounded = (
            None if self._weight is None else rounded_weight(self._weight, unit.granularity)
        )
        weights = {} if self._weight is None else {unit.weight or "": self._weight}
        self._session = Session(to_bytes(_extracted(model, nodes, unit, typical | weights)))

    def _weight_of(self, model: ir.Model) -> np.ndarray | None:
        value = model.graph.initializers.get(self._unit.weight or "")
        array = None if value is None else constant_of(value)
        return None if array is None else np.asarray(array, np.float32)

    def run(self, feed: Feed, *, rounded: bool) -> np.ndarray:
        """Return the output of the unit."""
        weight = self._rounded if rounded else self._weight
        weights = {} if weight is None else {self._unit.weight or "": weight}
        return self._session.run(feed | weights)[self._unit.output]


def _extracted(model: ir.Model, nodes: list[ir.Node], unit: QuantUnit, fed: Feed) -> ir.Model:
    made = {v for n in nodes for v in n.outputs}
    read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v not in made)
    outer = {v: _outer(v, fed.get(v.name or "")) for v in read}
    copies = dict(outer)
    body = [_copied(n, copies) for n in nodes]
    graph = ir.Graph(
        [c for c in outer.values() if c.const_value is None],
        [next(v for n in body for v in n.outputs if v.name == unit.output)],
        nodes=body,
        initializers=[c for c in outer.values() if c.const_value is not None],
        opset_imports=dict(model.opset_imports),
        name="unit",
    )
    return ir.Model(graph, ir_version=_IR_VERSION)


def _outer(value: ir.Value, fed: np.ndarray | None) -> ir.Value:
    """Return an input of the small model for what is fed, else an initializer."""
    if fed is not None:
        return ir.Value(name=value.name, type=ir.TensorType(ir.tensor(fed).dtype))
    array = np.asarray(constant_of(value))
    tensor = ir.tensor(array, name=value.name)
    return ir.Value(
        name=value.name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(array.shape),
        const_value=tensor,
    )


def _copied(node: ir.Node, copies: dict[ir.Value, ir.Value]) -> ir.Node:
    inputs = [None if v is None else copies[v] for v in node.inputs]
    attributes = node.attributes.values()
    copy = ir.Node(
        node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs), name=node.name
    )
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        new.name, new.type = old.name, old.type
        copies[old] = new
    return copy
