"""Place, calibrate by the least and greatest value, and spell a test model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of
from optcc.graph.io import check, to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.passkit.contract import Feed, PassResult
from optcc.passkit.testing import BareContext, bare_context
from optcc.runtime.session import OptimizationLevel, Session
from passes.lower.onnxruntime import LowerOnnxruntime
from passes.lower.tensorrt import LowerTensorrt
from passes.quantize.noise import sqnr_db
from passes.quantize.place import PlaceQuantization
from tests.models.layers import minmax, samples


def prepared(model: ir.Model, feeds: Sequence[Feed] | None = None) -> BareContext:
    """A context with plan and ranges."""
    context = bare_context()
    PlaceQuantization().run(model, context)
    assert context.plan is not None
    context.ranges = minmax(model, context.plan, feeds or samples(model))
    return context


def spell(
    a_pass: LowerTensorrt | LowerOnnxruntime, model: ir.Model, context: BareContext | None = None
) -> tuple[ir.Model, PassResult]:
    """Spell a copy; it must be sound and keep the signature."""
    context = context or prepared(model)
    copy = model.clone()
    result = a_pass.run(copy, context)
    assert lint(copy, signature_of(model)) == []
    assert check(copy) == []
    return copy, result


def level(original: ir.Model, spelled: ir.Model, feeds: Sequence[Feed]) -> float:
    """The least SQNR of any output, in dB, with all optimizations of the runtime off."""
    worst = math.inf
    for feed in feeds:
        exact = Session(to_bytes(original)).run(feed)
        got = Session(to_bytes(spelled)).run(feed)
        for name, reference in exact.items():
            found = sqnr_db(reference, got[name])
            assert found is not None, "the reference says nothing"
            worst = min(worst, found)
    return worst


def optimized(model: ir.Model, folder: Path) -> Counter[str]:
    """Operators that ONNX Runtime makes of `model` with all its optimizations."""
    saved = folder / "optimized.onnx"
    Session(to_bytes(model), level=OptimizationLevel.ALL, save_optimized=saved)
    return Counter(n.op_type for n in ir.load(saved).graph)


def node(model: ir.Model, name: str) -> ir.Node:
    """The node of that name."""
    return next(n for n in model.graph if n.name == name)


def dequantizer(reader: ir.Node, index: int) -> ir.Node:
    """The DequantizeLinear in front of an input."""
    value = reader.inputs[index]
    assert value is not None
    producer = value.producer()
    assert producer is not None
    assert producer.op_type == "DequantizeLinear"
    return producer


def constant(reader: ir.Node, index: int) -> np.ndarray:
    """The constant that an input reads."""
    array = constant_of(reader.inputs[index])
    assert array is not None
    return array


def run_at(model: ir.Model, feed: Feed, level: OptimizationLevel) -> np.ndarray:
    """The first output, with the runtime's optimizations at `level`."""
    return next(iter(Session(to_bytes(model), level=level).run(feed).values()))
