"""What changed between two versions of the default operator set, node by node.

Only changes that alter how a node is written or what it means are listed; all other changes widen
the allowed types. Sources: the operator definitions and their change log in the ONNX standard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, replace_node
from optcc.graph.shapes import known_rank

__all__ = ["OBSTACLES", "UPGRADES"]


Upgrade = Callable[[ir.Graph, ir.Node], None]
"""Rewrites one node of a graph; it cannot fail."""

Obstacle = Callable[[ir.Node], str]
"""Says why one node cannot be rewritten, or nothing."""


def _constant(graph: ir.Graph, node: ir.Node, role: str, array: np.ndarray) -> ir.Value:
    return add_constant(graph, f"{node.outputs[0].name}.{role}", array)


def _set_input(node: ir.Node, index: int, value: ir.Value | None) -> None:
    if len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)


def _ints_to_inputs(*roles: str, scalar: bool = False) -> Upgrade:
    """Move integer attributes to the inputs from the second on, in the given order."""

    def upgrade(graph: ir.Graph, node: ir.Node) -> None:
        for index, role in enumerate(roles, start=1):
            attribute = node.attributes.pop(role, None)
            if attribute is None:
                continue
            numbers = [attribute.as_int()] if scalar else list(attribute.as_ints())
            _set_input(node, index, _constant(graph, node, role, np.array(numbers, np.int64)))

    return upgrade


def _reduce_axes(graph: ir.Graph, node: ir.Node) -> None:
    """Axes become an input; no axes still means all of them."""
    if not node.attributes.get_ints("axes", ()):
        node.attributes.pop("axes", None)
    _ints_to_inputs("axes")(graph, node)


def _clip_bounds(graph: ir.Graph, node: ir.Node) -> None:
    for index, role in ((1, "min"), (2, "max")):
        attribute = node.attributes.pop(role, None)
        if attribute is not None:
            bound = np.array(attribute.as_float(), _float_type(node))
            _set_input(node, index, _constant(graph, node, role, bound))


def _float_type(node: ir.Node) -> np.dtype[np.generic]:
    value = node.inputs[0]
    assert value is not None
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())


def _untyped(*roles: str) -> Obstacle:
    """Numbers that become inputs need the type of the first input."""

    def obstacle(node: ir.Node) -> str:
        value = node.inputs[0]
        known = value is not None and value.dtype is not None
        needed = any(role in node.attributes for role in roles)
        return "the type of its input is not known" if needed and not known else ""

    return obstacle


def _pad_amounts(graph: ir.Graph, node: ir.Node) -> None:
    fill = node.attributes.pop("value", None)
    _ints_to_inputs("pads")(graph, node)
    if fill is not None and fill.as_float() != 0.0:
        number = np.array(fill.as_float(), _float_type(node))
        _set_input(node, 2, _constant(graph, node, "fill", number))


def _slice_bounds(graph: ir.Graph, node: ir.Node) -> None:
    _ints_to_inputs("starts", "ends", "axes")(graph, node)


def _batch_norm_9(graph: ir.Graph, node: ir.Node) -> None:
    node.attributes.pop("spatial", None)


def _by_position(node: ir.Node) -> str:
    if node.attributes.get_int("spatial", 1) == 1:
        return ""
    return "it normalizes each position by itself (spatial=0)"


def _batch_norm_14(graph: ir.Graph, node: ir.Node) -> None:
    node.resize_outputs(1)


def _more_than_one_read(reason: str) -> Obstacle:
    def obstacle(node: ir.Node) -> str:
        others = node.outputs[1:]
        return reason if any(v.uses() or v.is_graph_output() for v in others) else ""

    return obstacle


def _dropout_10(graph: ir.Graph, node: ir.Node) -> None:
    node.resize_outputs(1)


def _dropout_12(graph: ir.Graph, node: ir.Node) -> None:
    """Without a training flag the ratio means nothing."""
    node.attributes.pop("ratio", None)


def _scatter_11(graph: ir.Graph, node: ir.Node) -> None:
    node.op_type = "ScatterElements"


def _upsample_9(graph: ir.Graph, node: ir.Node) -> None:
    scales = node.attributes.pop("scales").as_floats()
    _set_input(node, 1, _constant(graph, node, "scales", np.array(scales, np.float32)))


def _upsample_10(graph: ir.Graph, node: ir.Node) -> None:
    node.op_type = "Resize"


def _resize_11(graph: ir.Graph, node: ir.Node) -> None:
    """Before, positions were scaled from the corner, and nearest rounded towards the source."""
    scales = node.inputs[1]
    _set_input(node, 1, None)
    _set_input(node, 2, scales)
    node.attributes.add(ir.AttrString("coordinate_transformation_mode", "asymmetric"))
    if node.attributes.get_string("mode", "nearest") == "nearest":
        node.attributes.add(ir.AttrString("nearest_mode", _old_rounding(scales)))


def _old_rounding(scales: ir.Value | None) -> str:
    numbers = constant_of(scales)
    return "ceil" if numbers is not None and (numbers < 1).any() else "floor"


def _mixed_rounding(node: ir.Node) -> str:
    numbers = constant_of(node.inputs[1])
    if numbers is None or node.attributes.get_string("mode", "nearest") != "nearest":
        return ""
    mixed = bool((numbers < 1).any()) and bool((numbers > 1).any())
    return "it grows one dim and shrinks another, rounding each its own way" if mixed else ""


def _lost_coordinates(node: ir.Node) -> str:
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    lost = mode == "tf_half_pixel_for_nn"
    return f"its coordinate mode {mode!r} no longer exists" if lost else ""


def _softmax_13(graph: ir.Graph, node: ir.Node) -> None:
    """Before, all dims from the axis on were one; now the axis stands for itself."""
    value = node.inputs[0]
    assert value is not None
    axis, rank = node.attributes.get_int("axis", 1), known_rank(value)
    if rank is not None and _is_single(value, axis % max(rank, 1), rank):
        node.attributes.add(ir.AttrInt64("axis", axis % max(rank, 1)))
        return
    name = node.outputs[0].name
    shape = ir.node("Shape", [value], name=f"{node.name}.shape")
    flat = ir.node("Flatten", [value], {"axis": axis}, name=f"{node.name}.flatten")
    soft = ir.node(node.op_type, flat.outputs, {"axis": 1}, name=node.name)
    back = ir.node("Reshape", [soft.outputs[0], shape.outputs[0]], name=f"{node.name}.reshape")
    for made, role in ((shape, "shape"), (flat, "flat"), (soft, "soft")):
        made.outputs[0].name = f"{name}.{role}"
    replace_node(graph, [node], [shape, flat, soft, back], node.outputs, back.outputs)


def _is_single(value: ir.Value, axis: int, rank: int) -> bool:
    """Tell whether the dims after `axis` are all 1, so that both meanings agree."""
    dims = value.shape.dims if value.shape is not None else ()
    return axis == rank - 1 or all(d == 1 for d in dims[axis + 1 :])


def _split_18(graph: ir.Graph, node: ir.Node) -> None:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes.add(ir.AttrInt64("num_outputs", len(node.outputs)))


def _roi_align_16(graph: ir.Graph, node: ir.Node) -> None:
    node.attributes.add(ir.AttrString("coordinate_transformation_mode", "output_half_pixel"))


def _grid_sample_20(graph: ir.Graph, node: ir.Node) -> None:
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attributes.get_string("mode", "bilinear")
    node.attributes.add(ir.AttrString("mode", renamed.get(mode, mode)))


def _dft_20(graph: ir.Graph, node: ir.Node) -> None:
    attribute = node.attributes.pop("axis", None)
    axis = 1 if attribute is None else attribute.as_int()
    _set_input(node, 2, _constant(graph, node, "axis", np.array(axis, np.int64)))


def _group_norm_21(graph: ir.Graph, node: ir.Node) -> None:
    """Scale and bias were per group; now they are per channel."""
    repeats = _channels(node) // node.attributes.get_int("num_groups", 1)
    for index, role in ((1, "scale"), (2, "bias")):
        old = constant_of(node.inputs[index])
        assert old is not None
        _set_input(node, index, _constant(graph, node, role, np.repeat(old, repeats)))


def _channels(node: ir.Node) -> int:
    value = node.inputs[0]
    dims = value.shape.dims if value is not None and value.shape is not None else ()
    return dims[1] if len(dims) > 1 and isinstance(dims[1], int) else 0


def _per_group_only(node: ir.Node) -> str:
    if not _channels(node):
        return "its number of channels is not known"
    constant = all(constant_of(v) is not None for v in node.inputs[1:3])
    return "" if constant else "its scale or bias is not constant"


def _for(operators: Sequence[str], upgrade: Upgrade) -> dict[str, Upgrade]:
    return dict.fromkeys(operators, upgrade)


_SOFTMAXES = ("Softmax", "LogSoftmax", "Hardmax")
_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)

UPGRADES: Mapping[int, Mapping[str, Upgrade]] = {
    9: {
        "BatchNormalization": _batch_norm_9,
        "Upsample": _upsample_9,
    },
    10: {
        "Dropout": _dropout_10,
        "Slice": _slice_bounds,
        "TopK": _ints_to_inputs("k", scalar=True),
        "Upsample": _upsample_10,
    },
    11: {
        "Clip": _clip_bounds,
        "Pad": _pad_amounts,
        "Resize": _resize_11,
        "Scatter": _scatter_11,
    },
    12: {"Dropout": _dropout_12},
    13: {
        **_for(_SOFTMAXES, _softmax_13),
        "ReduceSum": _reduce_axes,
        "Split": _ints_to_inputs("split"),
        "Squeeze": _ints_to_inputs("axes"),
        "Unsqueeze": _ints_to_inputs("axes"),
    },
    14: {"BatchNormalization": _batch_norm_14},
    16: {"RoiAlign": _roi_align_16},
    18: {**_for(_REDUCTIONS, _reduce_axes), "Split": _split_18},
    20: {"DFT": _dft_20, "GridSample": _grid_sample_20},
    21: {"GroupNormalization": _group_norm_21},
}
"""Per version of the default operator set: what to do with nodes when it is entered."""

OBSTACLES: Mapping[int, Mapping[str, Obstacle]] = {
    9: {
        "BatchNormalization": _by_position,
        "Scan": lambda node: "it has a batch dim, which was taken away",
    },
    10: {"Dropout": _more_than_one_read("its mask is read, and the type of masks changed")},
    11: {"Clip": _untyped("min", "max"), "Pad": _untyped("value"), "Resize": _mixed_rounding},
    13: {"Resize": _lost_coordinates},
    14: {"BatchNormalization": _more_than_one_read("it is in training mode")},
    21: {"GroupNormalization": _per_group_only},
}
"""Per version: what may keep a node from it; looked at before any node is rewritten."""
