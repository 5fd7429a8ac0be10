from __future__ import annotations

from dataclasses import replace

import numpy as np

from optcc.passkit.qtypes import ActivationRange
from passes.lower.qdq import QdqWriter
from passes.quantize.grid import signed_grid
from passes.quantize.weights import quantize_weight
from tests.models.sketch import Sketch

_GRID = signed_grid(ActivationRange(low=-1, high=1, method="minmax"))


def _two_readers() -> Sketch:
    s = Sketch()
    value = s.op("Neg", s.input("x", [4]), name="neg", to="v")
    s.output(s.op("Abs", value, name="abs"), [4])
    s.output(s.op("Exp", value, name="exp"), [4])
    return s


def test_a_pair_is_made_once_and_moves_no_reader() -> None:
    s = _two_readers()
    value = next(iter(s.graph)).outputs[0]
    writer = QdqWriter(s.graph)
    first = writer.pair(value, _GRID)
    assert writer.pair(value, _GRID) is first
    assert [n.op_type for n in s.graph] == [
        "Neg",
        "QuantizeLinear",
        "DequantizeLinear",
        "Abs",
        "Exp",
    ]
    assert len(value.uses()) == 3
    assert first.name == "v.dequantized"


def test_a_pair_for_all_takes_every_reader() -> None:
    s = _two_readers()
    value = next(iter(s.graph)).outputs[0]
    result = QdqWriter(s.graph).pair_for_all(value, _GRID, value)
    assert len(value.uses()) == 1
    assert {u.node.op_type for u in result.uses()} == {"Abs", "Exp"}


def test_a_graph_output_keeps_its_name() -> None:
    s = Sketch()
    value = s.op("Neg", s.input("x", ["N", 4]), name="neg", to="y")
    s.output(value, ["N", 4])
    result = QdqWriter(s.graph).pair_for_all(value, _GRID, value)
    assert s.graph.outputs[0] is result
    assert (result.name, value.name) == ("y", "y.float")
    assert result.shape is not None
    assert str(result.shape[0]) == "N"


def test_a_graph_input_is_quantized_in_front() -> None:
    s = Sketch()
    x = s.input("x", [4])
    s.output(s.op("Neg", x), [4])
    QdqWriter(s.graph).pair(x, _GRID)
    assert [n.op_type for n in s.graph] == ["QuantizeLinear", "DequantizeLinear", "Neg"]


def test_equal_weights_are_stored_once() -> None:
    s = Sketch()
    weight = s.weight("w", 4, 3)
    s.output(s.op("MatMul", s.input("x", [2, 4]), weight), [2, 3])
    writer = QdqWriter(s.graph)
    array = np.ones((4, 3), np.float32)
    first = writer.weight(weight, quantize_weight(array, 1, 127))
    assert writer.weight(weight, quantize_weight(array, 1, 127)) is first
    assert writer.weight(weight, quantize_weight(array, 0, 127)) is not first


def test_weights_of_one_scale_and_other_integers_are_kept_apart() -> None:
    s = Sketch()
    weight = s.weight("w", 4, 3)
    s.output(s.op("MatMul", s.input("x", [2, 4]), weight), [2, 3])
    writer = QdqWriter(s.graph)
    quantized = quantize_weight(np.ones((4, 3), np.float32), 1, 127)
    first = writer.weight(weight, quantized)
    assert writer.weight(weight, replace(quantized, data=quantized.data - 1)) is not first
