"""Scale and bias of a LayerNormalization -> into the matrix products that read it.

(n * scale + bias) @ w + b = n @ (diag(scale) w) + (b + bias @ w)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of
from optcc.graph.shapes import known_rank, static_dims
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from optcc.passkit.rewrite import Reject, drop_unused_constants, refuse, sign_nodes
from passes.fuse.channels import FLOATS, narrow
from passes.fuse.expected_noise import noise_share
from passes.fuse.linear import Linear, linear_of
from passes.quantize.relax import some_feeds

__all__ = ["FuseLayerNormLinear"]


_SHAPES = frozenset({"Shape", "Size"})
"""Readers that do not care what the numbers are."""

_ROWS = 8
"""Samples that the noise in int8 is judged on."""


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A normalization with its readers.

    Attributes:
        scale: [K], float64.
        bias: [K], float64; zeros where there is none.
    """

    node: ir.Node
    x: ir.Value
    scale: np.ndarray
    bias: np.ndarray
    linears: Sequence[Linear]


class FuseLayerNormLinear:
    """Leave a plain normalization (scale of ones, no bias) where only Linears read it.

    All readers take the fold or none does: MatMul with a constant weight, with or without the Add
    of its bias, and Gemm. A bias that is not zero needs a place: it goes into the Add behind a
    MatMul or into the Gemm. A MatMul without bias would need a new Add while no node goes away,
    so that the fold is refused.

    No kernel gets faster by it. It is for int8: a scale that is large for few channels takes the
    range of the data from all others, while weights have one per output channel. A small scale
    may also tame a large channel; so where there are samples, a fold that makes the products
    noisier in int8 is refused.

    Keeps: graph inputs and outputs, their names, types and shapes; names of all values and nodes;
    the real-valued function. Inner values change: that of the normalization, and the products
    before their bias.
    """

    name = "fuse.layernorm-linear"
    exactness = Exactness.ROUNDING
    needs: frozenset[Fact] = frozenset({Fact.SHAPES})
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Visit every LayerNormalization whose scale and bias are constants and not plain."""
        result = PassResult()
        found = _candidates(model, result)
        seen = _seen(model, [c.x for c in found], ctx)
        for candidate in found:
            try:
                self._fold(candidate, seen.get(candidate.x), ctx, result)
            except Reject as reject:
                result.rejects.append(Rejection(candidate.node.name or "", str(reject)))
        return result

    def _fold(
        self, c: _Candidate, x: np.ndarray | None, ctx: PassContext, result: PassResult
    ) -> None:
        folded = [self.folded(linear, c.scale, c.bias) for linear in c.linears]
        if x is not None:
            _refuse_noise(c, x)
        outputs = tuple(linear.output for linear in c.linears)
        members = ", ".join(repr(linear.product.name) for linear in c.linears)
        record = Rewrite(c.node.name or "", f"scale and bias into {members}", (c.x,), outputs)

        def action() -> Sequence[ir.Value]:
            graph = c.node.graph
            assert isinstance(graph, ir.Graph)
            _make_plain(graph, c.node)
            for linear, (weight, bias) in zip(c.linears, folded, strict=True):
                linear.write(graph, weight, bias)
            sign_nodes([c.node, *(n for linear in c.linears for n in linear.nodes)], self.name)
            return outputs

        if ctx.apply(record, action):
            result.rewrites.append(record)

    def folded(
        self, linear: Linear, scale: np.ndarray, bias: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Compute weight and bias of one reader; None where its bias stays as it is.

        Raises:
            Reject: There is no place for the bias, or a number does not fit the type.
        """
        w = linear.weight_array()
        wide = linear.inputs_first(w.astype(np.float64))
        weight = narrow(linear.inputs_first(scale[:, None] * wide), w, "weight")
        if not bias.any():
            return weight, None
        old = linear.bias_array()
        return weight, narrow(old + linear.alpha * (bias @ wide), w, "bias")


def _candidates(model: ir.Model, result: PassResult) -> list[_Candidate]:
    found: list[_Candidate] = []
    for graph in list(model.graphs()):
        for node in graph:
            if node.op_type != "LayerNormalization" or node.domain != "":
                continue
            try:
                affine, x = _affine(node), node.inputs[0]
                if affine is not None and x is not None:
                    found.append(_Candidate(node, x, *affine, _readers(node)))
            except Reject as reject:
                result.rejects.append(Rejection(node.name or "", str(reject)))
    return found


def _seen(
    model: ir.Model, values: Sequence[ir.Value], ctx: PassContext
) -> dict[ir.Value, np.ndarray]:
    """Return what samples make of those `values` that the main graph computes, as [rows, K]."""
    inner = [v for v in dict.fromkeys(values) if v.producer() in set(model.graph)]
    feeds = some_feeds(ctx.samples(), _ROWS) if inner else []
    if not feeds:
        return {}
    runs = ctx.run_all(model, feeds, [v.name or "" for v in inner])
    rows = {v: [r[v.name or ""] for r in runs] for v in inner}
    return {v: np.concatenate([_flat(a) for a in arrays]) for v, arrays in rows.items()}


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1]).astype(np.float64)


def _refuse_noise(c: _Candidate, x: np.ndarray) -> None:
    """Refuse a fold after which the products are noisier in int8."""
    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.square(centred).mean(axis=1, keepdims=True)
    plain = centred / np.sqrt(spread + c.node.attributes.get_float("epsilon", 1e-5))
    scaled = plain * c.scale + c.bias
    before = after = 0.0
    for linear in c.linears:
        weight = linear.inputs_first(linear.weight_array().astype(np.float64))
        before += noise_share(scaled, weight)
        after += noise_share(plain, c.scale[:, None] * weight)
    loss = 10.0 * np.log10(after / before) if before > 0 and after > 0 else 0.0
    refuse(loss > 0, f"its products would be {loss:.1f} dB noisier in int8")


def _affine(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Return scale and bias as [K] in float64; None when they are plain.

    Raises:
        Reject: They are not constant, or not one number per element of the last axis.
    """
    x, scale = node.inputs[0], constant_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    bias = constant_of(given)
    if scale is None or (given is not None and bias is None):
        raise Reject("its scale or bias is not constant")
    if bool((scale == 1).all()) and (bias is None or not bias.any()):
        return None
    axis, rank = node.attributes.get_int("axis", -1), known_rank(x)
    last = axis == -1 or (rank is not None and axis == rank - 1)
    refuse(not last or scale.ndim != 1, "it normalizes more than the last axis")
    wide = scale.astype(np.float64)
    return wide, np.zeros_like(wide) if bias is None else bias.astype(np.float64)


def _readers(node: ir.Node) -> list[Linear]:
    """Return what reads the normalized value.

    Raises:
        Reject: It is a graph output, or a reader cannot take the fold.
    """
    value, scale = node.outputs[0], node.inputs[1]
    refuse(value.is_graph_output(), f"{value.name!r} is a graph output")
    refuse(any(v.uses() for v in node.outputs[1:]), "its statistics are read")
    uses = [u for u in value.uses() if u.node.op_type not in _SHAPES or u.node.domain != ""]
    refuse(not uses, "no product reads it")
    refuse(value.dtype not in FLOATS, f"the type of {value.name!r} is not float")
    dims = static_dims(scale)
    assert dims is not None
    return [linear_of(use.node, use.idx, dims[0]) for use in uses]


def _make_plain(graph: ir.Graph, node: ir.Node) -> None:
    old = list(node.inputs[1:])
    scale = constant_of(old[0])
    assert scale is not None
    ones = add_constant(graph, f"{node.outputs[0].name}.scale", np.ones_like(scale))
    node.replace_input_with(1, ones)
    node.resize_inputs(2)
    drop_unused_constants(old)
