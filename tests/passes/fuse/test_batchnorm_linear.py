from __future__ import annotations

import numpy as np
import pytest

from passes.fuse.batchnorm_linear import FuseBatchNormLinear
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def k_of(*dims: int) -> np.ndarray:
    return (np.random.default_rng(1).random(dims) + 0.5).astype(np.float32)


def normed(kind: str, dims: list[int | str], *, var: float = 1.0, **attributes) -> Sketch:
    s = Sketch()
    x = s.input("x", dims)
    positive = s.constant("var", k_of(4) * np.float32(var))
    y = s.op("BatchNormalization", x, s.constant("gamma", k_of(4)), s.weight("beta", 4),
             s.weight("mean", 4), positive, name="norm")  # fmt: skip
    w = s.weight("w", *((6, 4, 3, 3) if kind == "Conv" else (4, 3)))
    s.output(s.op(kind, y, w, name="linear", **attributes), None)
    return s


@pytest.mark.parametrize("kind", ["Conv", "Gemm", "MatMul"])
def test_a_batchnorm_folds_into_what_reads_it(kind) -> None:
    model = normed(kind, ["N", 4, 6, 5] if kind == "Conv" else ["N", 4]).model()
    keeps(FuseBatchNormLinear(), model, [feed(model, N=2)])
    assert "BatchNormalization" not in ops(model)


def test_a_batchnorm_in_front_of_padding_stays() -> None:
    result = apply(FuseBatchNormLinear(), normed("Conv", [1, 4, 6, 5], pads=[1, 1, 1, 1]).model())
    assert reasons(result) == [("linear", "the padding zeros stand for numbers after the shift")]


def test_a_batchnorm_over_another_axis_stays() -> None:
    result = apply(FuseBatchNormLinear(), normed("MatMul", [2, 4, 4]).model())
    wanted = "its channels are not the axis that the product reads"
    assert reasons(result) == [("linear", wanted)]


def test_a_batchnorm_without_valid_variance_stays() -> None:
    result = apply(FuseBatchNormLinear(), normed("Gemm", [2, 4], var=-3.0).model())
    assert reasons(result) == [("linear", "'var' holds no valid variance")]


class MeanForgotten(FuseBatchNormLinear):
    """The classic fault: the running mean is left out of the bias."""

    def scale_and_shift(self, m, rank, axis, channels):
        scale, shift = super().scale_and_shift(m, rank, axis, channels)
        return scale, shift + m.array("mean") * scale


def test_runner_catches_a_broken_twin() -> None:
    assert "at 'linear'" in caught(MeanForgotten(), normed("Conv", [1, 4, 6, 5]).model())
