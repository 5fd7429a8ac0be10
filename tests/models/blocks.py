"""Blocks as exporters leave them: a residual block with its pads and norms, and self-attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests.models.sketch import Sketch


def _conv_bn(s: Sketch, x: ir.Value, inputs: int, outputs: int, tag: str) -> ir.Value:
    w = s.weight(f"{tag}.w", outputs, inputs, 3, 3)
    conv = s.op("Conv", s.op("Identity", x), w, name=f"{tag}.conv", pads=[1, 1, 1, 1])
    params = [s.weight(f"{tag}.{n}", outputs) for n in ("gamma", "beta", "mean")]
    spread = (s.rng.random(outputs) + 0.5).astype(np.float32)
    var = s.constant(f"{tag}.var", spread)
    return s.op("BatchNormalization", conv, *params, var, name=f"{tag}.bn")


def residual_block() -> ir.Model:
    """x [N, 3, 8, 8] -> Pad, Conv, BN, Relu, two Conv + BN, skip, Relu, pool, head of 10."""
    s = Sketch()
    x = s.input("x", ["N", 3, 8, 8])
    padded = s.op("Pad", x, s.integers("pads", 0, 0, 1, 1, 0, 0, 1, 1), name="pad")
    stem = s.op("Relu", _conv_bn(s, padded, 3, 8, "stem"), name="stem.relu")
    inner = s.op("Relu", _conv_bn(s, stem, 8, 8, "a"), name="a.relu")
    total = s.op("Add", _conv_bn(s, inner, 8, 8, "b"), stem, name="skip")
    pooled = s.op("GlobalAveragePool", s.op("Relu", total, name="out.relu"), name="pool")
    batch = s.op("Gather", s.op("Shape", pooled), s.constant("zero", np.array([0], np.int64)))
    target = s.op("Concat", batch, s.integers("open", -1), axis=0)
    flat = s.op("Reshape", pooled, target, name="flatten")
    logits = s.op("MatMul", flat, s.weight("head.w", 8, 10), name="head")
    s.output(s.op("Add", s.op("Dropout", logits), s.weight("head.b", 10), to="y"), ["N", 10])
    return s.model()


def _heads(s: Sketch, x: ir.Value, tag: str) -> ir.Value:
    projected = s.op("MatMul", x, s.weight(f"{tag}.w", 16, 16), name=tag)
    biased = s.op("Add", projected, s.weight(f"{tag}.b", 16), name=f"{tag}.bias")
    sizes = [
        s.op("Gather", s.op("Shape", x), s.constant(f"{tag}.{k}", np.array([k], np.int64)))
        for k in (0, 1)
    ]
    rest = s.integers(f"{tag}.rest", 4, 4)
    split = s.op("Reshape", biased, s.op("Concat", *sizes, rest, axis=0), name=f"{tag}.split")
    return s.op("Transpose", split, perm=[0, 2, 1, 3], name=f"{tag}.heads")


def self_attention() -> ir.Model:
    """x [N, S, 16], four heads; every projection computes its shapes anew."""
    s = Sketch()
    x = s.op("Relu", s.input("x", ["N", "S", 16]), name="in")
    q, k, v = (_heads(s, x, tag) for tag in ("q", "k", "v"))
    scores = s.op("MatMul", q, s.op("Transpose", k, perm=[0, 1, 3, 2], name="k.t"), name="scores")
    scaled = s.op("Mul", scores, s.constant("scale", np.float32(0.5)), name="scaled")
    mixed = s.op("MatMul", s.op("Softmax", scaled, axis=-1, name="probs"), v, name="mix")
    back = s.op("Transpose", mixed, perm=[0, 2, 1, 3], name="back")
    flat = s.op("Reshape", back, s.integers("flat", 0, 0, 16), name="flat")
    s.output(s.op("MatMul", flat, s.weight("out.w", 16, 16), name="out", to="y"), ["N", "S", 16])
    return s.model()
