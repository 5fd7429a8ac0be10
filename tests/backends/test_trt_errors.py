"""What the library says, and what the user reads."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from optcc.backends.trt_errors import explain
from tests.models.sketch import Sketch


def graph() -> ir.Model:
    sketch = Sketch()
    sketch.output(sketch.op("Relu", sketch.input("x", (2,)), name="relu_7", to="y"), (2,))
    return sketch.model()


def with_if() -> ir.Model:
    model = graph()
    flag = ir.Value(name="flag", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(()))
    model.graph.inputs.append(flag)
    model.graph.append(ir.Node("", "If", [flag], num_outputs=1, name="the_if"))
    return model


def parse_error(text: str, op: str = "Foo", code: str = "INVALID_NODE") -> dict[str, Any]:
    error = {"code": code, "text": text, "op": op, "node": "n1"}
    return {"stage": "parse", "errors": [error], "log": ["noise"]}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (
            parse_error('Assertion failed: creator && "Plugin not found, are the plugin name"'),
            "Foo has no importer in this TensorRT (unknown op or domain)",
        ),
        (
            parse_error("false", "Unique", "UNSUPPORTED_NODE"),
            "Unique is not supported by this TensorRT",
        ),
        (
            parse_error("shiftIsAllZeros(zeroPoint): Non-zero zero point", "QuantizeLinear"),
            "QuantizeLinear has a zero point that is not 0; TensorRT takes symmetric quantization "
            "only",
        ),
        (
            parse_error("Something else\nwith more lines"),
            "the parser refuses Foo: Something else",
        ),
    ],
)
def test_parser_errors_name_the_node(event: dict[str, Any], reason: str) -> None:
    failure = explain(event, graph(), ["n1"])
    assert (failure.reason, failure.node) == (reason, "n1")
    assert failure.hint


def test_build_errors_drop_the_frame_and_the_missing_gpu() -> None:
    log = [
        "[x.cpp::f::3] Error Code 6: API Usage Error (CUDA driver version, cudaError 35)",
        "[builder.cpp::g::12] Error Code 4: Internal Error (layer 'relu_7' is odd)",
    ]
    failure = explain({"stage": "build", "log": log}, graph(), ["relu_7"])
    assert failure.reason == "the builder failed: Internal Error (layer 'relu_7' is odd)"
    assert failure.node == "relu_7"


def test_only_the_missing_gpu_is_still_a_reason() -> None:
    log = ["[x.cpp::f::3] Error Code 6: CUDA driver version is insufficient (cudaError 35)"]
    assert "cudaError 35" in explain({"stage": "build", "log": log}, graph(), []).reason


def test_a_name_that_is_no_node_is_not_blamed() -> None:
    log = ["Internal Error (layer 'other' is odd)"]
    assert explain({"stage": "build", "log": log}, graph(), ["relu_7"]).node == ""


def test_hardware_types_ask_for_targets() -> None:
    log = ["Cannot compile for target(s) sm86, because the model contains HW-specific datatypes"]
    failure = explain({"stage": "build", "log": log}, graph(), [])
    assert "does not exist on one of the targets" in failure.reason
    assert "--target" in failure.hint


def test_deep_control_flow_names_the_outermost_node() -> None:
    log = ["Internal Error (Assertion tScope.getType() != ScopeType::kUNDEFINED failed. In x)"]
    failure = explain({"stage": "build", "log": log}, with_if(), [])
    assert failure.node == "the_if"
    assert "nested" in failure.reason


def test_no_reason_is_said_to_be_none() -> None:
    failure = explain({"stage": "build", "log": []}, graph(), [])
    assert failure.reason == "the builder failed: the builder gave no reason"
