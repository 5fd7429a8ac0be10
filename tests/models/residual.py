"""A small residual network with a Gemm head, its quantization plan, and samples for it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.passkit.qtypes import PerAxis, QuantPlan, QuantUnit

_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
residual (float[{batch}, 3, 6, 6] x, float[8, 3, 3, 3] w1, float[8, 8, 3, 3] w2, float[5, 72] w3,
  float[5] b3) => (float[{batch}, 5] y) {{
  [stem] c1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
  [stem_relu] r1 = Relu(c1)
  [body] c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2)
  [sum] s = Add(c2, r1)
  [sum_relu] r2 = Relu(s)
  [pool] p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r2)
  [flat] f = Flatten(p)
  [head] y = Gemm <transB = 1> (f, w3, b3)
}}
"""


def residual(batch: int | str = "n", seed: int = 0) -> ir.Model:
    """Conv, Relu, Conv, Add of the skip, Relu, MaxPool, Gemm."""
    model = ir.from_onnx_text(_TEXT.format(batch=batch))
    rng = np.random.default_rng(seed)
    for value in model.graph.inputs[1:]:
        shape = value.shape.numpy()
        array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        value.const_value = ir.tensor(array.astype(np.float32), name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def residual_plan() -> QuantPlan:
    """Three weighted units; the pool keeps the scale of what it reads."""
    return QuantPlan(
        units=[
            _unit(("stem", "stem_relu"), ("x",), "r1", "w1"),
            _unit(("body", "sum", "sum_relu"), ("r1",), "r2", "w2"),
            QuantUnit(nodes=("pool",), activations=("r2",), output="p"),
            QuantUnit(nodes=("flat",), activations=("p",), output="f"),
            _unit(("head",), ("f",), "y", "w3"),
        ],
        shared_scale=[("r2", "p"), ("p", "f")],
    )


def _unit(nodes: tuple[str, ...], reads: tuple[str, ...], output: str, weight: str) -> QuantUnit:
    return QuantUnit(
        nodes=nodes, activations=reads, output=output, weight=weight, granularity=PerAxis(0)
    )


def residual_samples(count: int, seed: int = 1) -> np.ndarray:
    """Images [count, 3, 6, 6] with a few values far out."""
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((count, 3, 6, 6)).astype(np.float32)
    images[:, :, 0, 0] *= np.float32(6)
    return images
