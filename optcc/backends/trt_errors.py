"""Turns what the TensorRT parser and builder say into one sentence, a node and a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Failure", "explain"]

_OTHER_BACKEND = "leave this backend out: --backend onnxruntime"
_SHAPES = "give the shapes: --shapes 'NAME:MIN..MAX', for example 'x:1x3x224x224..8x3x224x224'"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no engine."""

    reason: str
    node: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _Known:
    """A message of the library: what to look for, what it means, what mends it."""

    needle: str
    meaning: str
    hint: str = _OTHER_BACKEND


_PARSER = (
    _Known("Plugin not found", "{op} has no importer in this TensorRT (unknown op or domain)"),
    _Known("failed to load MatMulNBits", "MatMulNBits needs a plugin that is not there"),
    _Known(
        "Failed to convert ONNX date type", "an input or output has a type that engines cannot hold"
    ),
    _Known(
        "Failed to import initializer",
        "a constant cannot be read: its type is not supported or its external data is missing",
    ),
    _Known("Input file cannot be found", "the model file cannot be read", ""),
    _Known("Failed to parse the ONNX model", "the file is not an ONNX model", ""),
    _Known("must have same input types", "the operands of {op} have different types"),
    _Known("unsupported input type of INT64", "{op} on int64 is not supported"),
    _Known(
        "Non-zero zero point",
        "{op} has a zero point that is not 0; TensorRT takes symmetric quantization only",
        "compile from the float model, so that optcc chooses symmetric ranges",
    ),
    _Known("Scale coefficients must all be positive", "a scale of {op} is zero or negative", ""),
    _Known(
        "input has type Int32 but must have",
        "{op} dequantizes an int32 bias; TensorRT wants the bias in float",
        "compile from the float model",
    ),
    _Known("Node input was not registered", "{op} reads a value that nothing produces", ""),
    _Known("Failed to sort the model topologically", "the graph has a cycle", ""),
    _Known("Failed to convert ONNX dimensions", "a tensor has more than 8 dimensions"),
    _Known("does not support dilations other than 1", "{op} with dilations is not supported"),
    _Known("doesn't support mode than 1 outputs", "{op} with its extra outputs is not supported"),
)
_BUILDER = (
    _Known("but no optimization profile", "the model has dynamic inputs and no shapes", _SHAPES),
    _Known("MIN<=OPT<=MAX", "the shapes are not ordered: each dimension needs min <= opt <= max"),
    _Known("missing dimensions in profile", "a dynamic input has no shapes", _SHAPES),
    _Known("dimensions but profile", "the shapes have another rank than the input", _SHAPES),
    _Known("Dimension mismatch for tensor", "the shapes contradict a fixed dimension", _SHAPES),
    _Known(
        "must be equal",
        "inputs that share a named dimension were given different sizes for it",
        _SHAPES,
    ),
    _Known("is only allowed before DQ", "a quantized constant is read by something else than DQ"),
    _Known("is not consumed by", "a quantized constant is read by something else than its DQ"),
    _Known(
        "HW-specific datatypes",
        "a number format of the model does not exist on one of the targets",
        "name the targets that have it with --target, or choose another precision",
    ),
    _Known(
        "FP32 GEMM is not supported",
        "fp32 matrix products do not exist on sm75",
        "leave sm75 out, or use --precision fp16",
    ),
    _Known("K exceeds the maximum value allowed", "TopK asks for more than 3840 values"),
    _Known("there are no runners", "an operator has no kernel in this TensorRT"),
    _Known("failed to load plugin", "an operator needs a plugin that is not there"),
    _Known("CUDA initialization failure", "the builder needs an NVIDIA GPU and its driver"),
    _Known("BuildCanceled", "the build was canceled", ""),
)
_NESTED_CONTROL_FLOW = "tScope.getType() != ScopeType::kUNDEFINED"
_NO_DEVICE = "cudaError 35"
_NODE_IN_LOG = re.compile(r"\[ONNX Layer: ([^\]]+)\]|(?:node|layer) '?([^\s',:]+)'?", re.I)
_FRAME = re.compile(r"^\[[^\]]*\]\s*(?:Error Code \d+:\s*)?")


def explain(event: Mapping[str, Any], graph: ir.Model, names: Sequence[str]) -> Failure:
    """Explain a `failed` event of the build child.

    Args:
        event: `stage`, and `errors` or `log`.
        graph: What was to be built; names the node where the library does not.
        names: Of the graph's nodes.
    """
    lines = [str(line) for line in event.get("log", [])]
    if event.get("errors"):
        return _parser_failure(event["errors"][0])
    if event["stage"] in ("import", "profile"):
        hint = _SHAPES if event["stage"] == "profile" else ""
        return Failure(lines[0] if lines else "no reason given", hint=hint)
    told = [line for line in lines if _NO_DEVICE not in line] or lines
    if any(_NESTED_CONTROL_FLOW in line for line in told):
        return Failure(
            "this TensorRT cannot build If or Loop nodes that are nested this deeply",
            _outermost_control_flow(graph),
            _OTHER_BACKEND,
        )
    return _builder_failure(told, names)


def _parser_failure(error: Mapping[str, Any]) -> Failure:
    text, op, node = str(error["text"]), str(error["op"] or "a node"), str(error["node"])
    for known in _PARSER:
        if known.needle in text:
            return Failure(known.meaning.format(op=op), node, known.hint)
    if str(error["code"]).startswith("UNSUPPORTED_NODE"):
        detail = "" if text in ("false", "") else f": {_plain(text)}"
        return Failure(f"{op} is not supported by this TensorRT{detail}", node, _OTHER_BACKEND)
    return Failure(f"the parser refuses {op}: {_plain(text)}", node, _OTHER_BACKEND)


def _builder_failure(lines: Sequence[str], names: Sequence[str]) -> Failure:
    node = _named_node(lines, names)
    for known in _BUILDER:
        if any(known.needle in line for line in lines):
            return Failure(known.meaning, node, known.hint)
    said = _plain(lines[0]) if lines else "the builder gave no reason"
    return Failure(f"the builder failed: {said}", node, _OTHER_BACKEND)


def _named_node(lines: Sequence[str], names: Sequence[str]) -> str:
    known = frozenset(names)
    for line in lines:
        for found in _NODE_IN_LOG.finditer(line):
            name = found.group(1) or found.group(2)
            if name in known:
                return name
    return ""


def _outermost_control_flow(graph: ir.Model) -> str:
    for node in graph.graph:
        if node.op_type in ("If", "Loop", "Scan"):
            return node.name or ""
    return ""


def _plain(text: str) -> str:
    return _FRAME.sub("", text.strip()).split("\n")[0][:300]
