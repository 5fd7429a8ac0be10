from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from passes.quantize.growth import grow_units
from tests.models.layers import conv, perceptron, residual_block, single_conv, token_layer
from tests.models.sketch import Sketch


def _units(model: ir.Model) -> list[list[str]]:
    return [[n.name or "" for n in d.nodes] for d in grow_units(model.graph)[0]]


def test_a_residual_add_joins_the_later_conv() -> None:
    drafts, refused = grow_units(residual_block().graph)
    assert [[n.name for n in d.nodes] for d in drafts] == [
        ["stem", "stem_relu"],
        ["first", "first_relu"],
        ["second", "add", "add_relu"],
        ["head"],
    ]
    assert drafts[2].skip is not None
    assert drafts[2].skip.name == "stem_relu_out"
    assert [v.name for v in drafts[2].inner] == ["second_out"]
    assert refused == {}


@pytest.mark.parametrize("op", ["Relu", "HardSwish", "Clip"])
def test_activations_join(op: str) -> None:
    assert _units(single_conv(op)) == [["conv", op.lower()]]


def test_other_operators_do_not_join() -> None:
    assert _units(single_conv("Sigmoid")) == [["conv"]]


def test_nothing_joins_behind_an_activation() -> None:
    assert _units(single_conv("Relu", "Clip")) == [["conv", "relu"]]


def test_a_gemm_takes_its_relu() -> None:
    assert _units(perceptron()) == [["fc1", "relu"], ["fc2"]]


@pytest.mark.parametrize("dims", [(32,), (1, 32), (1, 1, 32), (1,), ()])
def test_a_matmul_takes_its_bias(dims: tuple[int, ...]) -> None:
    assert _units(token_layer(dims)) == [["up", "up_bias", "relu"], ["down"]]


def test_an_add_that_is_no_bias_stays_apart() -> None:
    assert _units(token_layer((4, 32))) == [["up"], ["down"]]


def test_a_value_seen_from_outside_ends_the_unit() -> None:
    model = single_conv("Relu")
    model.graph.outputs.append(next(iter(model.graph)).outputs[0])
    assert _units(model) == [["conv"]]


def test_a_clip_with_computed_bounds_stays_apart() -> None:
    s = Sketch()
    value = conv(s, s.input("x", ["N", 16, 8, 8]), "conv")
    s.output(s.op("Clip", value, s.input("low", []), name="clip"), None)
    assert _units(s.model()) == [["conv"]]


def test_a_broadcast_add_is_no_residual() -> None:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    gate = s.op("Conv", s.input("g", [1, 16, 1, 1]), s.weight("gw", 16, 16, 1, 1), name="gate")
    s.output(s.op("Add", conv(s, x, "conv"), gate, name="add"), None)
    assert _units(s.model()) == [["gate"], ["conv"]]


def test_a_float_skip_is_no_residual() -> None:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    s.output(s.op("Add", conv(s, x, "conv"), s.op("Softplus", x), name="add"), None)
    assert _units(s.model()) == [["conv"]]


def test_refused_layers_are_named() -> None:
    s = Sketch()
    x = s.input("x", [1, 4, 1, 1])
    w = s.constant("w", np.ones((4, 4, 1, 1), np.float32))
    s.output(s.op("Conv", x, w, name="gate"), [1, 4, 1, 1])
    drafts, refused = grow_units(s.model().graph)
    assert drafts == []
    assert list(refused) == ["gate"]
