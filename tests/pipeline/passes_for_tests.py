"""Passes for tests of the runner: right ones and twins that break their promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import constant_of, remove_dead, replace_node
from optcc.passkit.contract import (
    Exactness,
    Fact,
    PassContext,
    PassResult,
    Rejection,
    Rewrite,
)
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.registry import PassEntry, PassRegistry

NO_FACTS: frozenset[Fact] = frozenset()


class Base:
    name = "test.base"
    exactness = Exactness.BITWISE
    needs = gives = breaks = NO_FACTS

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        return PassResult()


class DropNodes(Base):
    """Let the input of every node of one kind stand for its output."""

    def __init__(self, op_type: str = "Identity", name: str = "test.drop") -> None:
        self.name, self.op_type = name, op_type

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        for node in [n for n in model.graph if n.op_type == self.op_type]:
            source = node.inputs[0]
            assert source is not None
            if source.is_graph_input() and node.outputs[0].is_graph_output():
                result.rejects.append(Rejection(node.name or "", "input and output are one"))
                continue
            rewrite = Rewrite(node.name or "", "dropped", (source,), (node.outputs[0],))
            if ctx.apply(rewrite, lambda n=node, v=source: self._drop(model, n, v)):
                result.rewrites.append(rewrite)
        return result

    @staticmethod
    def _drop(model: ir.Model, node: ir.Node, value: ir.Value) -> Sequence[ir.Value]:
        return replace_node(model.graph, [node], [], [node.outputs[0]], [value])


class ScaleWeights(Base):
    """Scale the weight of every MatMul in place, and say that only that MatMul changed.

    A twin that forgets the other readers: for `factor` 1 it is right.
    """

    exactness = Exactness.ROUNDING

    def __init__(self, factor: float, name: str = "test.scale", only: str = "") -> None:
        self.name, self.factor, self.only = name, factor, only

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        result = PassResult()
        for node in [n for n in model.graph if n.op_type == "MatMul"]:
            rewrite = Rewrite(node.name or "", "scaled", (node.inputs[0],), ())
            factor = self.factor if not self.only or node.name == self.only else 1.0
            if ctx.apply(rewrite, lambda n=node, f=factor: self._scale(n, f)):
                result.rewrites.append(rewrite)
        return result

    @staticmethod
    def _scale(node: ir.Node, factor: float) -> Sequence[ir.Value]:
        weight = node.inputs[1]
        array = constant_of(weight)
        assert weight is not None
        assert array is not None
        weight.const_value = ir.tensor((array * np.float32(factor)), name=weight.name)
        return []


class RemoveDead(Base):
    """Dead code, with no call of `apply` at all."""

    name = "test.dead"

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        removed = remove_dead(model.graph)
        return PassResult([Rewrite(n, "removed") for n in removed])


class Spoil(Base):
    """Run any function on the model, once, and report it as one rewrite without a region."""

    def __init__(
        self,
        action: Callable[[ir.Model], object],
        name: str = "test.spoil",
        exactness: Exactness = Exactness.BITWISE,
    ) -> None:
        self.name, self.action, self.exactness = name, action, exactness

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        if model.metadata_props.get(self.name):
            return PassResult()
        model.metadata_props[self.name] = "done"
        self.action(model)
        return PassResult([Rewrite("whole", "spoilt")])


class Restless(Base):
    """Always finds something to do."""

    name = "test.restless"

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        return PassResult([Rewrite("n", "again")])


class Count(Base):
    """Emits the random number that it gets."""

    name = "test.count"

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        assert isinstance(ctx, RunnerContext)
        ctx.emit("drawn", number=int(ctx.rng.integers(1 << 30)))
        return PassResult()


def registry(*passes: Base) -> PassRegistry:
    return PassRegistry(PassEntry(p.name, "tests", lambda p=p: p) for p in passes)
