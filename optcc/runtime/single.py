"""Run one node on constant inputs in the reference runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.runtime.session import Session

__all__ = ["evaluate_node"]

_IR_VERSION = 10


def evaluate_node(node: ir.Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """Run `node` alone, with the runtime's own optimizations off.

    Args:
        node: Any node without subgraphs that read outer values; it is not changed.
        inputs: One array per input of the node; None for an input that is left out.

    Returns:
        One array per output that the node names.

    Raises:
        BackendError: The runtime has no kernel for it or refuses the inputs.
    """
    fresh = [None if a is None else _input(f"i{k}", a) for k, a in enumerate(inputs)]
    copy = ir.Node(
        node.domain, node.op_type, fresh, node.attributes.values(), num_outputs=len(node.outputs)
    )
    for k, value in enumerate(copy.outputs):
        value.name = f"o{k}" if node.outputs[k].name else ""
    named = [v for v in copy.outputs if v.name]
    opsets = dict(node.graph.opset_imports) if node.graph is not None else {"": 21}
    graph = ir.Graph(
        [v for v in fresh if v is not None], named, nodes=[copy], opset_imports=opsets, name="one"
    )
    feeds = {f"i{k}": a for k, a in enumerate(inputs) if a is not None}
    names = [v.name or "" for v in named]
    results = Session(to_bytes(ir.Model(graph, ir_version=_IR_VERSION))).run(feeds, names)
    return [results[n] for n in names]


def _input(name: str, array: np.ndarray) -> ir.Value:
    dtype = ir.tensor(array).dtype
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape))
