from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from passes.quantize.narrow import Scales, data_values, hands_on, pass_through_nodes
from tests.models.layers import conv
from tests.models.sketch import Sketch


def _resize(**attributes: object) -> ir.Node:
    s = Sketch()
    x = s.input("x", [1, 2, 4, 4])
    sizes = s.constant("sizes", np.array([1, 1, 2, 2], np.float32))
    value = s.op("Resize", x, None, sizes, name="resize", **attributes)
    return value.producer()  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"mode": "nearest"}, True),
        ({"mode": "linear"}, False),
        ({"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize"}, False),
    ],
)
def test_a_resize_hands_on_only_what_it_copies(
    attributes: dict[str, object], expected: bool
) -> None:
    assert hands_on(_resize(**attributes)) is expected


@pytest.mark.parametrize(("filler", "expected"), [(0.0, True), (1.0, False), (None, True)])
def test_a_pad_hands_on_zeros_only(filler: float | None, expected: bool) -> None:
    s = Sketch()
    x = s.input("x", [1, 2, 4, 4])
    pads = s.integers("pads", 0, 0, 1, 1, 0, 0, 1, 1)
    rest = [] if filler is None else [s.constant("filler", np.array(filler, np.float32))]
    node = s.op("Pad", x, pads, *rest).producer()
    assert node is not None
    assert hands_on(node) is expected


def test_a_pad_by_reflection_hands_on() -> None:
    s = Sketch()
    node = s.op("Pad", s.input("x", [4]), s.integers("pads", 1, 1), mode="reflect").producer()
    assert node is not None
    assert hands_on(node)


def test_a_pool_whose_indices_are_read_does_not() -> None:
    s = Sketch()
    x = s.input("x", [1, 2, 4, 4])
    value = s.op("MaxPool", x, to=["y", "indices"], kernel_shape=[2, 2])
    s.output(value)
    node = value.producer()
    assert node is not None
    assert hands_on(node)
    s.output(node.outputs[1], dtype=ir.DataType.INT64)
    assert not hands_on(node)


def test_a_concat_with_a_constant_does_not() -> None:
    s = Sketch()
    x = s.input("x", [1, 2])
    node = s.op("Concat", x, s.weight("c", 1, 2), axis=1).producer()
    assert node is not None
    assert not hands_on(node)


def _pooled(*between: str) -> tuple[ir.Model, list[ir.Value], list[ir.Value]]:
    s = Sketch()
    first = conv(s, s.input("x", [1, 16, 8, 8]), "first")
    value = first
    for op in between:
        extra = {"kernel_shape": [2, 2]} if op == "MaxPool" else {}
        value = s.op(op, value, name=op.lower(), **extra)
    s.output(conv(s, value, "second"))
    return s.model(), [first], [value]


def test_between_two_int8_layers_it_stays_narrow() -> None:
    model, produced, wanted = _pooled("MaxPool", "Transpose")
    names = [n.name for n in pass_through_nodes(model.graph, produced, wanted)]
    assert names == ["maxpool", "transpose"]


def test_behind_a_float_operator_it_does_not() -> None:
    model, produced, wanted = _pooled("Sigmoid", "MaxPool")
    assert pass_through_nodes(model.graph, produced, wanted) == []


def test_in_front_of_a_float_operator_it_does_not() -> None:
    model, produced, wanted = _pooled("MaxPool", "Sigmoid")
    assert pass_through_nodes(model.graph, produced, wanted) == []


def test_data_of_a_concat_is_all_of_it() -> None:
    s = Sketch()
    a, b = s.input("a", [1, 2]), s.input("b", [1, 2])
    node = s.op("Concat", a, b, axis=1).producer()
    assert node is not None
    assert data_values(node) == [a, b]


def test_scales_join_in_chains() -> None:
    scales = Scales()
    scales.join(["a", "b"])
    scales.join(["c", "d"])
    scales.join(["e"])
    scales.join(["d", "a"])
    assert [sorted(g) for g in scales.groups()] == [["a", "b", "c", "d"]]
