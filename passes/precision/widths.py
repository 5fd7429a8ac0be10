"""Decides which nodes compute in fp16 and says why the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of

__all__ = ["Width", "float_operands", "half_constant", "misfit", "widths_of"]

_FLOAT = ir.DataType.FLOAT
_LARGEST = float(np.finfo(np.float16).max)
_ALLOWED_LOSS = 1e-2
"""Relative error of a constant above which fp16 is said to lose it (underflow)."""

_BLOCK = 1 << 20
_MASKED = 30000.0
"""Far below every score, and scores added to it stay within fp16."""


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


_HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_POINTWISE = _ops(
    "Abs Add Clip Div Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Max Min Mul Neg PRelu Relu Selu "
    "Sigmoid Softmax Sub Sum Tanh Where LayerNormalization"
)
_MOVING = _ops(
    "AveragePool Concat DepthToSpace Expand Flatten Gather GatherElements GlobalAveragePool "
    "GlobalMaxPool Identity MaxPool Pad Reshape Resize Slice SpaceToDepth Split Squeeze Tile "
    "Transpose Unsqueeze"
)
_SENSITIVE = _ops(
    "BatchNormalization CumSum Exp GroupNormalization InstanceNormalization Log LogSoftmax "
    "LpNormalization MeanVarianceNormalization Pow Reciprocal ReduceL1 ReduceL2 ReduceLogSum "
    "ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare RMSNormalization Softplus "
    "Sqrt"
)
_MASK_PATH = _ops("Add Expand Gather Identity Reshape Slice Squeeze Transpose Unsqueeze Where")
"""Operators between an attention mask and its Softmax."""

_OTHER_TYPES = {"Resize": frozenset({1, 2})}
"""Inputs by index that are not of the node's own element type."""


@dataclass(frozen=True, slots=True)
class Width:
    """The decision for one node; `reason` is empty when it is narrow."""

    narrow: bool
    reason: str = ""


def widths_of(graph: ir.Graph) -> Iterator[tuple[ir.Node, Width]]:
    """Decide for every node of `graph` that gives fp32 values, in graph order.

    Wide results stay wide through the arithmetic that follows, up to the next matrix product or
    convolution: a normalization spelled out in single operators is an island in fp32.
    """
    wide: set[ir.Value] = set()
    for node in graph:
        floats = [v for v in node.outputs if v.dtype == _FLOAT]
        if not floats:
            continue
        width, spreads = _width(node, wide)
        if spreads:
            wide.update(floats)
        yield node, width


def float_operands(node: ir.Node) -> list[tuple[int, ir.Value]]:
    """Return the inputs (index, value) that share the node's own fp32 type."""
    others = _OTHER_TYPES.get(node.op_type, frozenset())
    return [
        (index, value)
        for index, value in enumerate(node.inputs)
        if value is not None and value.dtype == _FLOAT and index not in others
    ]


def misfit(array: np.ndarray) -> str:
    """Say why fp16 cannot hold a constant; empty when it can."""
    largest = lost = size = 0.0
    flat = array.reshape(-1)
    for begin in range(0, flat.size, _BLOCK):
        block = flat[begin : begin + _BLOCK]
        block = block[np.isfinite(block)]
        largest = max(largest, float(np.abs(block).max(initial=0.0)))
        if largest > _LARGEST:
            continue
        lost += float(np.sum(np.square(block - block.astype(np.float16), dtype=np.float64)))
        size += float(np.sum(np.square(block, dtype=np.float64)))
    if largest > _LARGEST:
        return f"its largest value is {largest:.3g}, fp16 ends at {_LARGEST:.0f}"
    if lost > _ALLOWED_LOSS**2 * size:
        return f"its values are too small for fp16 (largest {largest:.3g})"
    return ""


def half_constant(array: np.ndarray) -> np.ndarray:
    """Convert a constant; what stands for infinity in a mask becomes a number that fp16 holds."""
    too_large = np.isfinite(array) & (np.abs(array) > _LARGEST)
    return np.where(too_large, np.copysign(_MASKED, array), array).astype(np.float16)


def _is_mask(node: ir.Node, constant: np.ndarray) -> bool:
    """Whether huge negative numbers in `constant` reach nothing but a Softmax, which drops them."""
    if node.op_type not in ("Add", "Mul", "Where") or not _only_huge_negative(constant):
        return False
    seen: set[ir.Node] = set()
    pending = [node]
    while pending:
        for value in pending.pop().outputs:
            readers = {user for user, _ in value.uses()} - seen
            if value.is_graph_output() or not value.uses():
                return False
            if any(r.op_type not in _MASK_PATH and r.op_type != "Softmax" for r in readers):
                return False
            seen |= readers
            pending.extend(r for r in readers if r.op_type != "Softmax")
    return True


def _only_huge_negative(array: np.ndarray) -> bool:
    return bool(np.all((array == 0) | (array < -_LARGEST)))


def _width(node: ir.Node, wide: set[ir.Value]) -> tuple[Width, bool]:
    """Return the decision, and whether it makes what follows wide."""
    if node.domain != "" or node.op_type not in _HEAVY | _POINTWISE | _MOVING:
        sensitive = node.domain == "" and node.op_type in _SENSITIVE
        why = "sums or exponents need the range of fp32" if sensitive else "not known to be safe"
        return Width(False, f"{node.op_type} stays in fp32: {why}"), sensitive
    for _, value in float_operands(node):
        constant = constant_of(value)
        problem = misfit(constant) if constant is not None else ""
        if problem and not (constant is not None and _is_mask(node, constant)):
            return Width(False, f"constant {value.name!r} does not fit fp16: {problem}"), True
        if value in wide and node.op_type not in _HEAVY:
            return Width(False, f"reads {value.name!r}, which is kept in fp32"), True
    return Width(True), False
