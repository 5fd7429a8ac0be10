"""One quantization unit as a small model of its own, with its weight as an input."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.calibrate.rounding import rounded_weight
from optcc.graph.edit import constant_of
from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import QuantUnit
from optcc.runtime.session import Session

__all__ = ["UnitModel", "entering_values"]


def entering_values(nodes: list[ir.Node]) -> list[ir.Value]:
    """Return what `nodes` read, is not constant and is made outside of them, each once."""
    made = {v for n in nodes for v in n.outputs}
    read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None)
    return [v for v in read if v not in made and constant_of(v) is None]


class UnitModel:
    """Runs the nodes of a unit with the float or with the rounded weight.

    Attributes:
        entering: Names of the values that must be fed.
    """

    def __init__(self, model: ir.Model, nodes: list[ir.Node], unit: QuantUnit) -> None:
        self._unit = unit
        self.entering = tuple(v.name or "" for v in entering_values(nodes))
        self._weight = self._weight_of(model)
        self._rounded = (
            None if self._weight is None else rounded_weight(self._weight, unit.granularity)
        )
        self._session = Session(to_bytes(_extracted(model, nodes, unit)))

    def _weight_of(self, model: ir.Model) -> np.ndarray | None:
        value = model.graph.initializers.get(self._unit.weight or "")
        array = None if value is None else constant_of(value)
        return None if array is None else np.asarray(array, np.float32)

    def run(self, feed: Feed, *, rounded: bool) -> np.ndarray:
        """Return the output of the unit."""
        weight = self._rounded if rounded else self._weight
        weights = {} if weight is None else {self._unit.weight or "": weight}
        return self._session.run(feed | weights)[self._unit.output]


def _extracted(model: ir.Model, nodes: list[ir.Node], unit: QuantUnit) -> ir.Model:
    copies: dict[ir.Value, ir.Value] = {}
    inputs, constants = [], []
    for value in dict.fromkeys(v for n in nodes for v in n.inputs if v is not None):
        array = constant_of(value)
        produced = value.producer() in nodes
        if produced:
            continue
        copy = ir.Value(name=value.name, type=value.type)
        copies[value] = copy
        if array is not None and value.name != unit.weight:
            copy.shape, copy.const_value = ir.Shape(array.shape), ir.tensor(array, name=value.name)
            constants.append(copy)
        else:
            inputs.append(copy)
    body = [_copied(n, copies) for n in nodes]
    output = next(v for n in body for v in n.outputs if v.name == unit.output)
    graph = ir.Graph(
        inputs,
        [output],
        nodes=body,
        initializers=constants,
        opset_imports=dict(model.opset_imports),
        name="unit",
    )
    return ir.Model(graph, ir_version=10)


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
