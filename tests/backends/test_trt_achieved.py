"""Real engines: what runs in int8 is said to, and each planted fault is a listed fallback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.backends.trt_achieved import achieved_precision
from optcc.backends.trt_plan import Launch, Plan
from tests.backends.build import build, needs_rtx, node, profile
from tests.models.quantized import quantized, small_cnn

INT8 = {"heavy": "int8"}


@needs_rtx
@pytest.mark.parametrize("op_type", ["Conv", "MatMul", "Gemm"])
def test_a_right_spelling_runs_in_int8(op_type: str, tmp_path: Path) -> None:
    outcome = build(quantized(op_type), tmp_path, wanted=INT8)
    found = node(outcome, "heavy")
    assert (found.got, found.reason) == ("int8", "")
    assert found.launch
    assert outcome.fallbacks() == ()


@needs_rtx
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            quantized("Conv", axis=1),
            "the scale of its weight runs along axis 1; its output channels are axis 0",
        ),
        (
            quantized("MatMul", axis=0),
            "the scale of its weight runs along axis 0; its output channels are axis 1",
        ),
        (
            quantized("Gemm", axis=0),
            "the scale of its weight runs along axis 0; its output channels are axis 1",
        ),
        (
            quantized("Conv", activation_per_channel=True),
            "the scale of its input 'x.dq_out' is per channel; it must be one number",
        ),
        (quantized("Conv", weight_is_float=True), "its weight 'w' is not quantized"),
        (quantized("MatMul", weight_is_float=True), "its weight 'w' is not quantized"),
        (quantized("MatMul", activation_is_float=True), "its input 'x' has no Q/DQ"),
        (quantized("ConvTranspose"), "TensorRT-RTX has no int8 kernel for ConvTranspose"),
    ],
    ids=[
        "conv scale on input channels",
        "matmul scale on K",
        "gemm scale on K",
        "activation per channel",
        "conv float weight",
        "matmul float weight",
        "matmul float activation",
        "convtranspose",
    ],
)
def test_a_planted_fault_is_a_fallback(model: object, reason: str, tmp_path: Path) -> None:
    outcome = build(model, tmp_path, wanted=INT8)  # type: ignore[arg-type]
    assert [(n.node, n.wanted, n.got, n.reason) for n in outcome.fallbacks()] == [
        ("heavy", "int8", "fp32", reason)
    ]


@needs_rtx
def test_weighted_nodes_are_reported_even_if_nothing_was_planned(tmp_path: Path) -> None:
    outcome = build(small_cnn(), tmp_path, shapes=profile(x=(4, 3, 8, 8)))
    assert [(n.node, n.got, n.wanted) for n in outcome.nodes] == [
        ("conv", "fp32", ""),
        ("gemm", "fp32", ""),
    ]
    assert outcome.achieved() == {"fp32": 2}


@needs_rtx
def test_a_node_that_moves_data_counts_by_what_its_kernel_moves(tmp_path: Path) -> None:
    wanted = {"conv": "fp32", "relu": "int8", "pool": "fp32"}
    outcome = build(small_cnn(), tmp_path, shapes=profile(x=(4, 3, 8, 8)), wanted=wanted)
    assert node(outcome, "pool").got == "fp32"
    assert node(outcome, "relu").reason == "its kernel neither reads nor writes int8 data"
    assert [n.node for n in outcome.fallbacks()] == ["relu"]


def test_what_finishes_an_int8_product_is_part_of_it() -> None:
    product = Launch(
        kind="corrltn",
        name="heavy",
        reads=("int8", "int8"),
        writes=("fp32",),
        nodes=("heavy",),
        on_device=True,
    )
    finish = replace(product, kind="function", reads=("fp32",), nodes=("heavy", "relu"))
    plan = Plan((product, finish), ())
    model = quantized("Conv")
    model.graph.append(ir.Node("", "Relu", [model.graph.outputs[0]], name="relu"))
    assert [n.got for n in achieved_precision(plan, model, {"relu": "int8"})] == ["int8", "int8"]
    alone = Plan((replace(product, reads=("fp32", "fp32")), finish), ())
    assert [n.got for n in achieved_precision(alone, model, {"relu": "int8"})] == ["fp32", "fp32"]


def test_an_engine_without_a_program_is_unknown_not_guessed() -> None:
    nodes = achieved_precision(Plan((), ()), quantized("Conv"), INT8)
    assert [(n.got, n.reason) for n in nodes] == [
        ("unknown", "the engine holds no readable program")
    ]
    assert not nodes[0].is_fallback
