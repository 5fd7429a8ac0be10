"""Names that a report can point at: unique and never empty."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optcc.graph.names import Renaming, plan_renamings, rename
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rewrite

__all__ = ["CanonicalizeNames"]


class CanonicalizeNames:
    """Make the names of nodes and values unique, nested graphs included.

    Keeps: every bit of every output, and the names of all inputs and outputs of the model.
    """

    name = "canonicalize.names"
    exactness = Exactness.BITWISE
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Rename what is nameless or shares its name; nothing else changes."""
        result = PassResult()
        for renaming in plan_renamings(model):
            record = Rewrite(renaming.new, str(renaming))
            if ctx.apply(record, lambda r=renaming: _apply(r)):  # type: ignore[misc]
                result.rewrites.append(record)
        return result


def _apply(renaming: Renaming) -> Sequence[ir.Value]:
    rename(renaming)
    return ()
