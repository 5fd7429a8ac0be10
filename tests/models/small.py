"""Models of a few nodes, for tests of graph surgery."""

from __future__ import annotations

import onnx_ir as ir

_HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def chain(*ops: str) -> ir.Model:
    """x[2] -> ops -> y[2]; inner values are v0, v1, ..."""
    outputs = [f"v{k}" for k in range(len(ops) - 1)] + ["y"]
    body, read = [], "x"
    for op, made in zip(ops, outputs, strict=True):
        body.append(f"{made} = {op}({read})")
        read = made
    return ir.from_onnx_text(f"{_HEAD} g (float[2] x) => (float[2] y) {{ {' '.join(body)} }}")


def two_outputs() -> ir.Model:
    """Two equal branches, each an output."""
    return ir.from_onnx_text(
        f"{_HEAD} g (float[2] x) => (float[2] a, float[2] b) {{ a = Relu(x) b = Relu(x) }}"
    )


def with_if() -> ir.Model:
    """An If whose branches read a value of the outer graph."""
    return ir.from_onnx_text(
        f"""{_HEAD} g (float[2] x, bool c) => (float[2] y) {{
          r = Relu(x)
          [If_0] y = If (c) <
            then_branch = t () => (float[2] inner) {{ inner = Neg(r) }},
            else_branch = e () => (float[2] other) {{ other = Abs(r) }}
          > }}"""
    )


def shadowing() -> ir.Model:
    """A branch whose own weight has the name of an outer value; nodes without names."""
    return ir.from_onnx_text(
        f"""{_HEAD} g (float[2] x, bool c) => (float[2] y) {{
          t = Relu(x)
          u = Abs(t)
          v = If (c) <
            then_branch = a () => (float[2] r) <float[2] t = {{3, 4}}> {{ r = Add(x, t) }},
            else_branch = b () => (float[2] r) {{ r = Neg(x) }}
          >
          y = Add(u, v) }}"""
    )
