"""One version of the default operator set, so that patterns know one spelling."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.errors import UnsupportedModelError
from optcc.graph.io import check
from optcc.graph.walk import all_graphs
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite
from passes.canonicalize.upgrades import OBSTACLES, UPGRADES

__all__ = ["WORKING_OPSET", "CanonicalizeOpset"]

WORKING_OPSET = 21
"""Version that all passes are written for; newer models keep theirs."""

_LOWEST_USABLE = 13
"""From here on per-channel Q/DQ and constants as inputs exist, which the other passes need."""

_IR_VERSION = 10
"""The file format that came with the working version."""


class CanonicalizeOpset:
    """Raise the default operator set to the working version, nested graphs included.

    Nodes change only where the standard changed their spelling or meaning; names stay. When a
    node cannot be raised, the model stops at the version before, which is recorded, or is
    refused when that version is too old for the other passes.

    Keeps: inputs, outputs and the function; some resampling nodes may round differently.
    """

    name = "canonicalize.opset"
    exactness = Exactness.ROUNDING
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset({Fact.CANONICAL})
    breaks: frozenset[Fact] = frozenset({Fact.SHAPES})

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Raise version by version.

        Raises:
            UnsupportedModelError: A node blocks the way to the lowest usable version.
        """
        result = PassResult()
        start = model.opset_imports[""]
        if start >= WORKING_OPSET:
            return result
        inputs = tuple(v for v in model.graph.inputs if not v.is_initializer())
        record = Rewrite(
            "graph", f"operator set {start} was raised", inputs, tuple(model.graph.outputs)
        )

        def action() -> Sequence[ir.Value]:
            _raise_all(model, result.rejects)
            return tuple(model.graph.outputs)

        if ctx.apply(record, action):
            result.rewrites.append(record)
        return result


def _raise_all(model: ir.Model, rejects: list[Rejection]) -> None:
    """Enter one version after the other until the working one or an obstacle is reached."""
    for version in range(model.opset_imports[""] + 1, WORKING_OPSET + 1):
        obstacle = _enter(model, version)
        if obstacle is None:
            continue
        if version <= _LOWEST_USABLE:
            raise UnsupportedModelError(
                f"node {obstacle.node!r} cannot be raised to operator set {version}:"
                f" {obstacle.reason}",
                hint=f"export the model again at operator set {WORKING_OPSET - 4} or later",
                where=f"node {obstacle.node!r}",
            )
        rejects.append(obstacle)
        break
    model.ir_version = max(model.ir_version, _IR_VERSION)
    problems = check(model)
    if problems:
        raise UnsupportedModelError(f"raised to operator set {WORKING_OPSET}, {problems[0]}")


def _enter(model: ir.Model, version: int) -> Rejection | None:
    """Rewrite for `version` all nodes that it changed; on an obstacle, none of them."""
    table, obstacles = UPGRADES.get(version, {}), OBSTACLES.get(version, {})
    nodes = [(g, n) for g in all_graphs(model.graph) for n in g if n.domain == ""]
    for _, node in nodes:
        reason = obstacles[node.op_type](node) if node.op_type in obstacles else ""
        if reason:
            return Rejection(node.name or "", reason)
    for graph, node in nodes:
        if node.op_type in table:
            table[node.op_type](graph, node)
    model.opset_imports[""] = version
    return None
