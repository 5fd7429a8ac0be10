"""Types and shapes that can be relied on."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.shapes import infer_shapes
from optcc.graph.walk import graphs_of
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite

__all__ = ["CanonicalizeShapes"]


class CanonicalizeShapes:
    """Infer types and shapes of inner values afresh; what the file claims is dropped.

    Keeps: every bit of every output, and what inputs and outputs declare.
    """

    name = "canonicalize.shapes"
    exactness = Exactness.BITWISE
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset({Fact.SHAPES})
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Infer all at once; the record says how many values changed."""
        before = _described(model)

        def infer() -> Sequence[ir.Value]:
            infer_shapes(model)
            return ()

        probe = Rewrite("graph", "types and shapes were inferred")
        result = PassResult()
        if not ctx.apply(probe, infer):
            return result
        after = _described(model)
        changed = [name for name, old, new in zip(*before, after[1], strict=True) if old != new]
        ctx.emit("shapes", values=len(after[0]), changed=len(changed))
        if changed:
            result.rewrites.append(probe)
        return result


def _described(model: ir.Model) -> tuple[list[str], list[str]]:
    values = [v for g in graphs_of(model) for n in g for v in n.outputs]
    return [v.name or "" for v in values], [f"{v.type} {v.shape}" for v in values]
