"""Operators that hand integer data on: they stay narrow where both of their sides are.

Such an operator moves, selects or repeats values, so that it commutes with Q/DQ of one grid. Its
inputs and its output therefore carry one scale.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, is_constant

__all__ = ["PASS_THROUGH", "Scales", "data_inputs", "data_values", "hands_on", "pass_through_nodes"]

PASS_THROUGH = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "MaxPool",
        "Pad",
        "Reshape",
        "Resize",
        "Slice",
        "SpaceToDepth",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that may commute with Q/DQ; `hands_on` decides for one node."""


def hands_on(node: ir.Node) -> bool:
    """Tell whether `node` only hands on values of its data inputs (and zeros)."""
    if node.domain != "" or node.op_type not in PASS_THROUGH:
        return False
    if any(is_constant(v) for v in data_values(node)):
        return False
    if node.op_type == "Resize":
        return node.attributes.get_string("mode", "nearest") == "nearest" and not _extrapolates(
            node
        )
    if node.op_type == "Pad":
        return _pads_with_zero(node)
    if node.op_type == "MaxPool":
        return len([v for v in node.outputs if v.name and (v.uses() or v.is_graph_output())]) == 1
    return True


def _extrapolates(node: ir.Node) -> bool:
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    return mode == "tf_crop_and_resize"


def _pads_with_zero(node: ir.Node) -> bool:
    if node.attributes.get_string("mode", "constant") != "constant":
        return True
    value = node.inputs[2] if len(node.inputs) > 2 else None
    filler = constant_of(value)
    return value is None or (filler is not None and not np.any(filler))


def data_inputs(node: ir.Node) -> list[int]:
    """Return the positions of the inputs whose values `node` hands on."""
    return list(range(len(node.inputs))) if node.op_type == "Concat" else [0]


def pass_through_nodes(
    graph: ir.Graph, produced: Iterable[ir.Value], wanted: Iterable[ir.Value]
) -> list[ir.Node]:
    """Return the nodes that stay narrow, in graph order.

    Args:
        graph: Topologically sorted.
        produced: Values that come out of int8 units.
        wanted: Values that int8 units read.
    """
    candidates = _reached(graph, dict.fromkeys(produced))
    needed = dict.fromkeys(wanted)
    chosen = []
    for node in reversed(candidates):
        if node.outputs[0] in needed:
            chosen.append(node)
            needed.update(dict.fromkeys(data_values(node)))
    return chosen[::-1]


def _reached(graph: ir.Graph, produced: dict[ir.Value, None]) -> list[ir.Node]:
    """Return the nodes all of whose data comes, through such nodes only, from int8 units."""
    reached = []
    for node in graph:
        if not hands_on(node):
            continue
        values = data_values(node)
        if values and all(v in produced for v in values):
            reached.append(node)
            produced[node.outputs[0]] = None
    return reached


def data_values(node: ir.Node) -> list[ir.Value]:
    """Return the values that `node` hands on."""
    return [v for k in data_inputs(node) if (v := node.inputs[k]) is not None]


class Scales:
    """Values that must share one scale, joined step by step."""

    def __init__(self) -> None:
        self._leader: dict[str, str] = {}

    def join(self, names: Iterable[str]) -> None:
        """Put all of `names` into one group."""
        leaders = [self._find(n) for n in names]
        for leader in leaders[1:]:
            self._leader[self._find(leader)] = self._find(leaders[0])

    def _find(self, name: str) -> str:
        self._leader.setdefault(name, name)
        while self._leader[name] != name:
            name = self._leader[name]
        return name

    def groups(self) -> list[tuple[str, ...]]:
        """Return the groups of two or more names, each in order of first mention."""
        found: dict[str, list[str]] = {}
        for name in self._leader:
            found.setdefault(self._find(name), []).append(name)
        return [tuple(members) for members in found.values() if len(members) > 1]
