"""Rewrites for tests of the checker: one that is right, and its broken twins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.graph.edit import add_constant, constant_of, replace_node
from optcc.graph.signature import signature_of
from optcc.passkit.contract import Exactness, Rewrite
from optcc.verify.observe import observe
from optcc.verify.probes import make_probes
from optcc.verify.region import RegionCheck, RegionChecker
from tests.models.regions import node

Action = Callable[[], Sequence[ir.Value]]
Arrays = tuple[np.ndarray, np.ndarray]


def profile(model: ir.Model, *, batch: tuple[int, int] = (1, 4), other: int = 5) -> ShapeProfile:
    """Batch 1 to 4, every other free dim fixed."""
    inputs = []
    for spec in signature_of(model).inputs:
        dims = spec.dims or ()
        low, high = (
            tuple(
                d if isinstance(d, int) else (batch[end] if k == 0 else other)
                for k, d in enumerate(dims)
            )
            for end in (0, 1)
        )
        inputs.append(InputShapes(name=spec.name, min=low, opt=low, max=high))
    return ShapeProfile(tuple(inputs), "default")


def checker(model: ir.Model, seed: int = 0) -> RegionChecker:
    probes = make_probes(model, signature_of(model), profile(model), (), seed)
    assert len(probes) == 2
    return RegionChecker(model, observe(model, probes), seed)


def check(
    model: ir.Model,
    rewrite: Rewrite,
    action: Action,
    exactness: Exactness = Exactness.ROUNDING,
) -> RegionCheck:
    region = checker(model)
    reference = region.before(rewrite)
    return region.after(reference, action(), exactness)


def whole_rewrite(model: ir.Model, last: str) -> Rewrite:
    """The region from all inputs to the outputs of the node `last`."""
    return Rewrite(last, "test", tuple(model.graph.inputs), tuple(node(model, last).outputs))


def fold_bn(
    model: ir.Model, *, spoil: Callable[[np.ndarray, np.ndarray], Arrays] | None = None, eps=1e-5
) -> Action:
    """Fold `bn` into `conv`; `spoil` changes the folded weight and bias."""
    conv, bn = node(model, "conv"), node(model, "bn")

    def action() -> list[ir.Value]:
        w, gamma, beta, mean, var = (constant_of(v) for v in (conv.inputs[1], *bn.inputs[1:]))
        scale = gamma / np.sqrt(var + np.float32(eps))
        weight, bias = w * scale[:, None, None, None], beta - mean * scale
        if spoil is not None:
            weight, bias = spoil(weight, bias)
        graph = model.graph
        new = ir.Node(
            "",
            "Conv",
            [
                conv.inputs[0],
                add_constant(graph, "y.weight", weight.astype(np.float32)),
                add_constant(graph, "y.bias", bias.astype(np.float32)),
            ],
            list(conv.attributes.values()),
            name="conv",
        )
        return replace_node(graph, [conv, bn], [new], [bn.outputs[0]], [new.outputs[0]])

    return action


def replace_last(model: ir.Model, last: str, *nodes: ir.Node) -> Action:
    """Put `nodes` where the node `last` is."""

    def action() -> list[ir.Value]:
        old = node(model, last)
        return replace_node(
            model.graph, [old], list(nodes), list(old.outputs), [nodes[-1].outputs[0]]
        )

    return action


def drop(model: ir.Model, last: str) -> Action:
    """Let the first input of the node `last` stand for its output."""

    def action() -> list[ir.Value]:
        old = node(model, last)
        value = old.inputs[0]
        assert value is not None
        return replace_node(model.graph, [old], [], [old.outputs[0]], [value])

    return action
