"""Joins an engine's program with the graph it was built from: what does each node really run in?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from optcc.backends.contract import PRECISION_BITS, NodeAchieved
from optcc.backends.trt_plan import Launch, Plan, operand_precision
from optcc.backends.trt_reasons import why_not_narrow

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["WEIGHTED_OPS", "achieved_precision"]

WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that are always reported, whether anything was planned for them or not."""

_FLOATS = frozenset({"fp32", "fp16", "bf16"})
_NO_PLAN = "the engine holds no readable program"
_NO_TYPES = "the program does not tell the types of its operands"
_NO_KERNEL = "the program names no kernel for it"


def achieved_precision(
    plan: Plan, graph: ir.Model, wanted: Mapping[str, str]
) -> tuple[NodeAchieved, ...]:
    """Report every weighted node and every node that something was planned for.

    A convolution or matrix product runs in the type of its two operands. Any other node computes
    in registers between what its kernel reads and writes: it counts as what was wanted when the
    kernel moves data of that type, or finishes a product of operands of that type.
    """
    index = _Index(plan)
    return tuple(
        _report(node, index, wanted.get(node.name or "", ""))
        for node in graph.graph.all_nodes()
        if node.op_type in WEIGHTED_OPS or (node.name or "") in wanted
    )


class _Index:
    """The launches that serve each node."""

    def __init__(self, plan: Plan) -> None:
        self.is_empty = not plan.launches
        self.weighted = _by_node(plan.weighted())
        self.kernels = _by_node(plan.kernels())

    def multiplies(self, node: str) -> Launch | None:
        """Find the convolution or matrix product that `node` became."""
        found = self.weighted.get(node, [])
        own = [x for x in found if node in (x.name, *x.name.split("+"))]
        return next(iter(own or found), None)

    def moved(self, kernels: Sequence[Launch], wanted: str) -> str:
        """Return `wanted` where a kernel moves or finishes such data, else the float it writes."""
        for launch in (x for k in kernels for n in k.nodes for x in self.weighted.get(n, [])):
            if operand_precision(launch) == wanted:
                return wanted
        return _moved(kernels, wanted)


def _by_node(launches: Iterable[Launch]) -> dict[str, list[Launch]]:
    found: dict[str, list[Launch]] = {}
    for launch in launches:
        for node in launch.nodes:
            found.setdefault(node, []).append(launch)
    return found


def _report(node: ir.Node, index: _Index, wanted: str) -> NodeAchieved:
    name = node.name or ""
    launch = index.multiplies(name) if node.op_type in WEIGHTED_OPS else None
    kernels = index.kernels.get(name, [])
    got, reason = "unknown", ""
    if launch is not None:
        got = operand_precision(launch)
        reason = _NO_TYPES if got == "unknown" else ""
    elif kernels:
        launch = kernels[0]
        got = _generated(kernels) if node.op_type in WEIGHTED_OPS else index.moved(kernels, wanted)
    elif index.is_empty:
        reason = _NO_PLAN
    elif node.op_type in WEIGHTED_OPS:
        reason = _NO_KERNEL
    else:
        got, reason = "folded", "no kernel of its own"
    entry = NodeAchieved(
        node=name,
        op_type=node.op_type,
        wanted=wanted,
        got=got,
        reason=reason,
        launch=launch.name if launch is not None else "",
    )
    return replace(entry, reason=why_not_narrow(node, wanted)) if entry.is_fallback else entry


def _moved(kernels: Iterable[Launch], wanted: str) -> str:
    """Return `wanted` where a kernel moves such data, else the widest float that it writes."""
    reads = [t for x in kernels for t in x.reads if t in PRECISION_BITS]
    writes = [t for x in kernels for t in x.writes if t in PRECISION_BITS]
    if wanted in reads or wanted in writes:
        return wanted
    floats = [t for t in writes if t in _FLOATS] or [t for t in reads if t in _FLOATS]
    return max(floats or writes or reads, key=PRECISION_BITS.__getitem__, default="folded")


def _generated(kernels: Iterable[Launch]) -> str:
    """Return what a generated kernel multiplies in; it widens narrow data before it computes.

    A fused attention kernel is the exception: it multiplies what it reads.
    """
    launch = next(iter(kernels))
    if "mha" in launch.name and launch.reads and launch.reads[0] in PRECISION_BITS:
        return launch.reads[0]
    floats = [t for t in (*launch.reads, *launch.writes) if t in _FLOATS]
    return max(floats, key=PRECISION_BITS.__getitem__, default="unknown")
