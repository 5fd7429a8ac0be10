"""Folds into weights with one planted fault each: subclasses of the real ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant
from optcc.passkit.matcher import Match
from optcc.passkit.rewrite import node_like
from passes.fuse.batchnorm import PARAMETERS
from passes.fuse.channels import scale_kernel
from passes.fuse.conv_affine import FuseConvAffine
from passes.fuse.conv_batchnorm import FuseConvBatchNorm
from passes.fuse.gemm_affine import FuseGemmAffine
from passes.fuse.gemm_batchnorm import FuseGemmBatchNorm
from passes.fuse.matmul_bias import FuseMatMulBias
from passes.fuse.matmul_scale import FuseMatMulScale

__all__ = ["FOLDS"]


def _norm(m: Match, *, eps: float | None = None, outside: bool = False):
    """Return scale and shift of a BatchNormalization, wrongly where asked."""
    gamma, beta, mean, var = (m.array(n).astype(np.float64) for n in PARAMETERS)
    own = m.root.attributes.get_float("epsilon", 1e-5)
    eps = own if eps is None else eps
    spread = np.sqrt(var) + eps if outside else np.sqrt(var + eps)
    return gamma / spread, beta - mean * gamma / spread


class _ConvNorm(FuseConvBatchNorm):
    def numbers(self, m: Match):
        return _norm(m)

    def folded(self, m: Match):
        w, b = m.array("w"), m.optional_array("b")
        scale, shift = self.numbers(m)
        weight = scale_kernel(m.node("conv"), w, scale)
        bias = shift if b is None else shift + b * scale
        return weight.astype(w.dtype), np.asarray(bias).astype(w.dtype)


class EpsilonIgnored(_ConvNorm):
    name = "wrong.bn-epsilon-ignored"

    def numbers(self, m: Match):
        return _norm(m, eps=0.0)


class EpsilonOutside(_ConvNorm):
    name = "wrong.bn-epsilon-outside-sqrt"

    def numbers(self, m: Match):
        return _norm(m, outside=True)


class WrongAxis(_ConvNorm):
    """Scales the input channels where their number fits."""

    name = "wrong.bn-axis"

    def applies(self, m: Match) -> bool:
        w = m.array("w")
        return m.node("conv").op_type == "Conv" and w.shape[0] == w.shape[1]

    def folded(self, m: Match):
        _, bias = super().folded(m)
        w = m.array("w")
        return (w * self.numbers(m)[0].reshape(1, -1, 1, 1)).astype(w.dtype), bias


class KernelTransposed(_ConvNorm):
    name = "wrong.bn-kernel-transposed"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        return np.ascontiguousarray(weight.swapaxes(-1, -2)), bias


class BiasDropped(_ConvNorm):
    """Forgets the bias that the Conv has already."""

    name = "wrong.bn-conv-bias-dropped"

    def folded(self, m: Match):
        return super().folded(m)[0], self.numbers(m)[1].astype(m.array("w").dtype)


class BiasUnscaled(_ConvNorm):
    name = "wrong.bn-conv-bias-unscaled"

    def folded(self, m: Match):
        weight, _ = super().folded(m)
        b, shift = m.optional_array("b"), self.numbers(m)[1]
        return weight, (shift if b is None else shift + b).astype(weight.dtype)


class ScaleTwice(_ConvNorm):
    name = "wrong.bn-scale-twice"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        twice = scale_kernel(m.node("conv"), weight, self.numbers(m)[0])
        return twice.astype(weight.dtype), bias


class LastBias(_ConvNorm):
    name = "wrong.bn-last-bias-dropped"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        bias = bias.copy()
        bias[-1] = 0
        return weight, bias


class OneSign(_ConvNorm):
    name = "wrong.bn-one-channel-sign"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        weight = weight.copy()
        weight[0] *= -1
        return weight, bias


class InnerReader(FuseConvBatchNorm):
    """The escape check is switched off: who reads the Conv gets the folded result."""

    name = "wrong.bn-other-reader-ignored"

    def _objection(self, match: Match) -> str | None:
        reason = match.escape()
        return None if reason is not None and "also read" in reason else reason or "no reader"

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        outputs = super().rewrite(m, graph)
        m.node("conv").outputs[0].replace_all_uses_with(outputs[0])
        m.root.replace_input_with(0, m.node("conv").outputs[0])
        return outputs


class AffineInverted(FuseConvAffine):
    """Divides where it must multiply and the other way round."""

    name = "wrong.conv-affine-inverted"

    def applies(self, m: Match) -> bool:
        return m.root.op_type in ("Mul", "Div")

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        k = m.array("k").astype(np.float64).reshape(-1)
        factor = k**2 if m.root.op_type == "Div" else k**-2.0
        factor = np.broadcast_to(factor, bias.shape)
        return scale_kernel(m.node("weighted"), weight, factor).astype(weight.dtype), bias


class AffineSubtract(FuseConvAffine):
    name = "wrong.conv-affine-subtract-adds"

    def applies(self, m: Match) -> bool:
        return m.root.op_type == "Sub"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        return weight, (bias + 2 * m.array("k").reshape(-1)).astype(bias.dtype)


class AffineBias(FuseConvAffine):
    """Scales the weight and not the bias."""

    name = "wrong.conv-affine-bias-unscaled"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        old = m.optional_array("b")
        scales = m.root.op_type in ("Mul", "Div") and old is not None
        return weight, (old.copy() if scales else bias)


class GemmBeta(FuseGemmAffine):
    """Keeps beta although it is in the folded bias already."""

    name = "wrong.gemm-beta-twice"

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [output] = super().rewrite(m, graph)
        beta = m.node("weighted").attributes.get_float("beta", 1.0)
        node = output.producer()
        node.attributes["beta"] = ir.AttrFloat32("beta", beta)
        return [output]


class GemmAlpha(FuseGemmAffine):
    name = "wrong.gemm-alpha-ignored"

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [output] = super().rewrite(m, graph)
        output.producer().attributes.pop("alpha", None)
        return [output]


class GemmRows(FuseGemmBatchNorm):
    """Scales rows of the weight where it is square."""

    name = "wrong.gemm-bn-rows"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        return np.ascontiguousarray(weight.T) if weight.shape[0] == weight.shape[
            1
        ] else weight, bias


class GemmNormBeta(FuseGemmBatchNorm):
    """Takes the bias as it is, without beta."""

    name = "wrong.gemm-bn-beta-ignored"

    def folded(self, m: Match):
        weight, bias = super().folded(m)
        c, beta = m.optional_array("c"), m.node("product").attributes.get_float("beta", 1.0)
        gain = m.array("gamma") / np.sqrt(m.array("var") + m.root.attributes.get_float("epsilon"))
        return weight, (bias if c is None else bias + (1 - beta) * c * gain).astype(bias.dtype)


class MatMulBiasSign(FuseMatMulBias):
    name = "wrong.matmul-bias-negated"

    def bias(self, m: Match) -> np.ndarray:
        return -super().bias(m)


class MatMulScaleRolled(FuseMatMulScale):
    """Shifts the factors by one column."""

    name = "wrong.matmul-scale-shifted"

    def folded(self, m: Match) -> np.ndarray:
        right, w = super().folded(m), m.array("w").astype(np.float64)
        scale = np.divide(right, w, out=np.ones_like(w), where=w != 0)
        return (w * np.roll(scale, 1, axis=1)).astype(right.dtype)


class ScaleInPlace(FuseMatMulScale):
    """Scales the weight where it lies, although others read it; names only its own region."""

    name = "wrong.shared-weight-scaled-in-place"

    def check(self, m: Match) -> None:
        self.folded(m)

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        w = m.value("w")
        w.const_value = ir.tensor(self.folded(m), name=w.name)
        return node_like(m.node("matmul"), [m.value("x"), w]).outputs


class HalfBias(FuseMatMulBias):
    """Adds half of the bias."""

    name = "wrong.matmul-bias-halved"

    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        half = np.asarray(m.array("k") / 2).astype(m.array("w").dtype)
        bias = add_constant(graph, "wrong.bias", half)
        product = node_like(m.node("matmul"), m.node("matmul").inputs).outputs[0]
        return node_like(m.root, [product, bias]).outputs


FOLDS = (
    EpsilonIgnored,
    EpsilonOutside,
    WrongAxis,
    KernelTransposed,
    BiasDropped,
    BiasUnscaled,
    ScaleTwice,
    LastBias,
    OneSign,
    InnerReader,
    AffineInverted,
    AffineSubtract,
    AffineBias,
    GemmBeta,
    GemmAlpha,
    GemmRows,
    GemmNormBeta,
    MatMulBiasSign,
    MatMulScaleRolled,
    ScaleInPlace,
    HalfBias,
)
