from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.passkit.qtypes import ActivationRange
from optcc.passkit.testing import bare_context
from passes.lower.cpu_ranges import bounds_of, unsigned_grids
from passes.quantize.place import PlaceQuantization
from tests.models.layers import conv
from tests.models.sketch import Sketch


def _clip(low: float | None, high: float | None) -> ir.Node:
    s = Sketch()
    bounds = [
        None if b is None else s.constant(f"b{k}", np.array(b, np.float32))
        for k, b in enumerate((low, high))
    ]
    node = s.op("Clip", s.input("x", [4]), *bounds).producer()
    assert node is not None
    return node


def test_bounds_of_clips() -> None:
    assert bounds_of(_clip(0, 6)) == (0, 6)
    assert bounds_of(_clip(None, 6)) == (-np.inf, 6)
    assert bounds_of(_clip(-1, None)) == (-1, np.inf)
    relu = Sketch()
    node = relu.op("Relu", relu.input("x", [1])).producer()
    assert node is not None
    assert bounds_of(node) == (0, np.inf)


def _joined() -> ir.Model:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    left = s.op("Relu", conv(s, x, "a"), name="relu")
    joined = s.op("Concat", left, conv(s, x, "b"), name="concat", axis=1)
    pooled = s.op("MaxPool", joined, name="pool", kernel_shape=[1, 1])
    s.output(conv(s, pooled, "c", channels=32), [1, 16, 8, 8])
    return s.model()


def test_a_relu_starts_at_zero_although_its_group_does_not() -> None:
    model, context = _joined(), bare_context()
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    wide = ActivationRange(low=-4.0, high=4.0, method="minmax")
    ranges = dict.fromkeys(context.plan.observed(), wide)
    grids = unsigned_grids(model.graph, context.plan, ranges)
    assert grids["relu_out"].zero_point == 0
    assert grids["b_out"].zero_point == 127
    assert grids["concat_out"] == grids["pool_out"]
