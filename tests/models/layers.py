"""Models with layers that can run in int8, and ranges as a calibration would give them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Feed
from optcc.passkit.qtypes import ActivationRange, QuantPlan, RangeTable
from optcc.runtime.session import Session
from tests.models.sketch import Sketch

CHANNELS = 16


def conv(s: Sketch, x: ir.Value, name: str, out: int = CHANNELS, **options: int) -> ir.Value:
    """A 3x3 convolution with bias that keeps the spatial size."""
    groups = options.get("group", 1)
    inputs = options.get("channels", CHANNELS)
    weight = s.constant(f"{name}_w", _scaled(s, out, inputs // groups, 3, 3))
    bias = s.constant(f"{name}_b", _scaled(s, out))
    return s.op("Conv", x, weight, bias, name=name, pads=[1, 1, 1, 1], group=groups)


def _scaled(s: Sketch, *dims: int) -> np.ndarray:
    fan_in = max(1, int(np.prod(dims[1:])))
    return np.asarray(s.rng.standard_normal(dims) / np.sqrt(fan_in), np.float32)


def residual_block() -> ir.Model:
    """x -> stem -> Relu -> (conv -> Relu -> conv) + skip -> Relu -> head -> y."""
    s = Sketch()
    x = s.input("x", ["N", 3, 8, 8])
    stem = s.op("Relu", conv(s, x, "stem", channels=3), name="stem_relu")
    body = s.op("Relu", conv(s, stem, "first"), name="first_relu")
    total = s.op("Add", conv(s, body, "second"), stem, name="add")
    s.output(conv(s, s.op("Relu", total, name="add_relu"), "head"), ["N", CHANNELS, 8, 8])
    return s.model()


def single_conv(*ops: str, groups: int = 1) -> ir.Model:
    """x -> conv -> ops -> y."""
    s = Sketch()
    value = conv(s, s.input("x", ["N", CHANNELS, 8, 8]), "conv", group=groups)
    for op in ops:
        value = s.op(op, value, name=op.lower())
    s.output(value, None)
    return s.model()


def perceptron(*, trans_b: bool = False, bias: int | None = 24) -> ir.Model:
    """x[N, 32] -> Gemm -> Relu -> Gemm -> y[N, 24]; `bias` is the length of the second one."""
    s = Sketch()
    x = s.input("x", ["N", 32])
    dims = (40, 32) if trans_b else (32, 40)
    first = s.op(
        "Gemm",
        x,
        s.constant("w1", _scaled(s, *dims)),
        s.constant("b1", _scaled(s, 40)),
        name="fc1",
        transB=int(trans_b),
    )
    hidden = s.op("Relu", first, name="relu")
    rest = [] if bias is None else [s.constant("b2", _scaled(s, bias))]
    s.output(
        s.op("Gemm", hidden, s.constant("w2", _scaled(s, 40, 24)), *rest, name="fc2"), ["N", 24]
    )
    return s.model()


def token_layer(bias_dims: Sequence[int] = (32,)) -> ir.Model:
    """x[N, S, 24] -> MatMul -> Add -> Relu -> MatMul -> y[N, S, 24]."""
    s = Sketch()
    x = s.input("x", ["N", "S", 24])
    product = s.op("MatMul", x, s.constant("w1", _scaled(s, 24, 32)), name="up")
    total = s.op("Add", product, s.weight("b1", *bias_dims), name="up_bias")
    hidden = s.op("Relu", total, name="relu")
    s.output(
        s.op("MatMul", hidden, s.constant("w2", _scaled(s, 32, 24)), name="down"), ["N", "S", 24]
    )
    return s.model()


def attention() -> ir.Model:
    """Self-attention of one head: three projections, the core, and an output projection."""
    s = Sketch()
    x = s.input("x", ["N", 5, 16])
    names = ("q", "k", "v")
    q, k, v = (s.op("MatMul", x, s.constant(f"{n}_w", _scaled(s, 16, 16)), name=n) for n in names)
    scores = s.op("MatMul", q, s.op("Transpose", k, perm=[0, 2, 1]), name="scores")
    context = s.op("MatMul", s.op("Softmax", scores, name="softmax"), v, name="context")
    s.output(s.op("MatMul", context, s.constant("o_w", _scaled(s, 16, 16)), name="o"), None)
    return s.model()


def samples(model: ir.Model, count: int = 4, seed: int = 1, **symbols: int) -> list[Feed]:
    """Feeds of normal numbers; each symbol gets its size, 2 where none is given."""
    rng = np.random.default_rng(seed)
    dims = {
        v.name or "": [d if isinstance(d, int) else symbols.get(str(d), 2) for d in v.shape.dims]
        for v in model.graph.inputs
        if v.shape is not None
    }
    return [
        {n: rng.standard_normal(d).astype(np.float32) for n, d in dims.items()}
        for _ in range(count)
    ]


def values_of(model: ir.Model, feeds: Feed, names: Sequence[str]) -> Feed:
    """Run and return inner values by name."""
    tapped = model.clone()
    made = {v.name: v for n in tapped.graph for v in n.outputs}
    outputs = {v.name for v in tapped.graph.outputs}
    tapped.graph.outputs.extend(made[n] for n in names if n in made and n not in outputs)
    found = Session(to_bytes(tapped)).run(feeds)
    return {n: feeds[n] if n in feeds else found[n] for n in names}


def minmax(model: ir.Model, plan: QuantPlan, feeds: Sequence[Feed]) -> RangeTable:
    """Ranges from the least to the greatest value seen."""
    names = plan.observed()
    seen = [values_of(model, f, names) for f in feeds]
    table = {
        n: ActivationRange(
            low=min(0.0, *(float(v[n].min()) for v in seen)),
            high=max(0.0, *(float(v[n].max()) for v in seen)),
            method="minmax",
        )
        for n in names
    }
    return RangeTable(signed=table, unsigned=table)
