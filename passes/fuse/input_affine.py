"""One scale and one shift per input channel, folded into the Conv, Gemm or MatMul that reads them.

conv(s * x + t, w) + b = conv(x, w * s) + (b + sum over w of t)      without padding
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.graph.shapes import known_rank
from optcc.passkit.contract import Exactness, Fact
from optcc.passkit.matcher import Match
from optcc.passkit.pattern import Pattern, Root, const, maybe, one_of, op
from optcc.passkit.rewrite import Reject, RewritePass, node_like, refuse
from passes.fuse.channels import FLOATS, narrow
from passes.fuse.columns import column_bias, gemm_attributes

__all__ = ["InputAffineFold", "linear"]

_MOST_RATIO = 8.0
"""Between channels: beyond it one range for the raw input would drown the small ones."""

_MOST_SHIFT = {np.dtype(np.float64): 2.0**16, np.dtype(np.float32): 256.0}
"""By type, and 16 for half: beyond it the folded sums would cancel. 256 holds pixels of 8 bits."""


def linear(before: Pattern) -> Root:
    """Return the pattern of a weighted node that reads `before`."""
    return one_of(
        op("Conv", before, const("w"), maybe(const("b"))),
        op("Gemm", before, const("w"), maybe(const("b"))),
        op("MatMul", before, const("w")),
    )


class InputAffineFold(RewritePass):
    """The base of folds into the weighted node behind; the pattern binds `x`, `w` and `b`."""

    exactness = Exactness.ROUNDING
    needs = frozenset({Fact.SHAPES})

    @abstractmethod
    def scale_and_shift(
        self, m: Match, rank: int, axis: int, channels: int
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Return s (None when it is 1) and t of s * x + t, each [channels] in float64.

        Raises:
            Reject: They differ within a channel.
        """

    def applies(self, m: Match) -> bool:
        """Take float data whose rank is known, and a matrix as the weight of a product."""
        x, w = m.value("x"), m.value("w")
        if x.dtype not in FLOATS or w.dtype not in FLOATS or known_rank(x) is None:
            return False
        return m.root.op_type != "MatMul" or known_rank(w) == 2

    def check(self, m: Match) -> None:
        """Refuse a shared weight, padding that would meet a shift, and wide spreads."""
        w = m.value("w")
        refuse(len(w.uses()) > 1, f"weight {w.name!r} also feeds another node")
        refuse(bool(m.root.attributes.get_int("transA", 0)), "the Gemm reads its data transposed")
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        """Make the node with the folded numbers; the bias of a MatMul becomes an Add."""
        weight, bias = self.folded(m)
        name, root, w = m.outputs[0].name, m.root, m.value("w")
        if weight is not None:
            w = add_constant(graph, f"{name}.weight", weight)
        if bias is None:
            return node_like(root, [m.value("x"), w, *root.inputs[2:]]).outputs
        b = add_constant(graph, f"{name}.bias", bias)
        if root.op_type != "MatMul":
            attributes = gemm_attributes(root) if root.op_type == "Gemm" else root.attributes
            return node_like(root, [m.value("x"), w, b], attributes=attributes).outputs
        product = node_like(root, [m.value("x"), w])
        product.outputs[0].name = f"{name}.product"
        return ir.Node("", "Add", [product.outputs[0], b], name=f"{root.name}.bias").outputs

    def folded(self, m: Match) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Compute weight and bias, each None where it stays.

        Raises:
            Reject: They cannot be computed, or do not fit the type of the weight.
        """
        w, rank = m.array("w"), known_rank(m.value("x"))
        assert rank is not None
        rows = _rows(m.root, w)
        axis = 1 if m.root.op_type == "Conv" else rank - 1
        channels = rows.shape[0] * rows.shape[2]
        scale, shift = self.scale_and_shift(m, rank, axis, channels)
        _refuse_spread(scale)
        _refuse_shift(shift, w.dtype)
        moved = bool(shift.any())
        refuse(moved and _pads(m.root), "the padding zeros stand for numbers after the shift")
        factors = np.ones(channels) if scale is None else scale
        weight = None if scale is None else narrow(_scaled(m.root, w, factors), w, "weight")
        return weight, self._bias(m, rows, shift) if moved else None

    def _bias(self, m: Match, rows: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Return the old bias plus what the shift gives to each output channel."""
        groups, _, inputs, _ = rows.shape
        added = np.einsum("gmik,gi->gm", rows, shift.reshape(groups, inputs)).reshape(-1)
        w, b = m.array("w"), m.optional_array("b")
        if m.root.op_type == "Gemm":
            alpha = m.root.attributes.get_float("alpha", 1.0)
            return narrow(column_bias(m.root, b, len(added)) + alpha * added, w, "bias")
        old = np.zeros(len(added)) if b is None else b.astype(np.float64)
        return narrow(old + added, w, "bias")


def _rows(node: ir.Node, weight: np.ndarray) -> np.ndarray:
    """Return the weight as [groups, outputs, inputs, kernel positions], float64."""
    wide = weight.astype(np.float64)
    if node.op_type == "Conv":
        groups = node.attributes.get_int("group", 1)
        return wide.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    if not node.attributes.get_int("transB", 0):
        wide = wide.T
    return wide[None, :, :, None]


def _scaled(node: ir.Node, weight: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Multiply what each input channel meets."""
    wide = weight.astype(np.float64)
    if node.op_type == "Conv":
        groups = node.attributes.get_int("group", 1)
        outputs = weight.shape[0] // groups
        per_output = np.repeat(factors.reshape(groups, weight.shape[1]), outputs, axis=0)
        return np.asarray(wide * per_output.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2)))
    transposed = bool(node.attributes.get_int("transB", 0))
    return np.asarray(wide * (factors if transposed else factors[:, None]))


def _refuse_spread(scale: np.ndarray | None) -> None:
    if scale is None:
        return
    sizes = np.abs(scale)
    refuse(bool((sizes == 0).any()), "a channel is multiplied by 0")
    ratio = float(sizes.max() / sizes.min())
    if ratio > _MOST_RATIO:
        raise Reject(f"its channels differ {ratio:.0f} times in scale")


def _refuse_shift(shift: np.ndarray, dtype: np.dtype) -> None:
    largest = float(np.abs(shift).max())
    too_large = largest > _MOST_SHIFT.get(dtype, 16.0)
    refuse(too_large, f"it shifts by {largest:.3g}, which would cancel against large sums")


def _pads(node: ir.Node) -> bool:
    auto = node.attributes.get_string("auto_pad", "NOTSET")
    if auto == "VALID":
        return False
    return auto != "NOTSET" or any(node.attributes.get_ints("pads") or ())
