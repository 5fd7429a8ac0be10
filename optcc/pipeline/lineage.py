"""Which nodes a rewrite takes away and which stand in their place, by name."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["node_names"]

_MOST_NODES = 16


def node_names(outputs: Sequence[ir.Value], inputs: Sequence[ir.Value]) -> tuple[str, ...]:
    """Name the nodes between `inputs` and `outputs`, nearest to the outputs first.

    Returns:
        Nothing when there are more nodes than any one rewrite is likely to be about.
    """
    border, found = set(inputs), dict[ir.Node, None]()
    pending = list(outputs)
    for value in pending:  # grows while it is walked
        node = value.producer()
        if value in border or node is None or node in found:
            continue
        found[node] = None
        if len(found) > _MOST_NODES:
            return ()
        pending += [v for v in node.inputs if v is not None]
    return tuple(dict.fromkeys(n.name for n in found if n.name))
