"""Put computed numbers in the place of a node."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import fresh_name, remove_nodes, replace_node
from optcc.passkit.rewrite import drop_unread, sign_nodes

__all__ = ["store_results"]


def store_results(
    graph: ir.Graph, node: ir.Node, arrays: Mapping[ir.Value, np.ndarray], name: str
) -> list[ir.Value]:
    """Replace outputs of `node` by initializers and remove what nothing reads any more.

    An initializer takes the name of the value; an output of the graph stays behind an Identity.

    Args:
        graph: Holds the node.
        node: All its outputs that something needs must be in `arrays`.
        arrays: The numbers.
        name: Of the pass, for the metadata of new nodes.

    Returns:
        The values that now stand for the keys of `arrays`, in their order.
    """
    read = list(node.inputs)
    standing: dict[ir.Value, ir.Value] = {}
    inner: list[ir.Value] = []
    for old, array in arrays.items():
        output = old.is_graph_output()
        wanted = old.name or ""
        new = _constant(fresh_name(graph, f"{wanted}.constant") if output else wanted, array)
        if output:
            [standing[old]] = replace_node(graph, [], [], [old], [new])
            sign_nodes([p for p in [standing[old].producer()] if p is not None], name)
            graph.register_initializer(new)
        else:
            old.replace_all_uses_with(new)
            standing[old] = new
            inner.append(new)
    remove_nodes(graph, [node])
    for new in inner:
        graph.register_initializer(new)
    drop_unread(read)
    return [standing[value] for value in arrays]


def _constant(name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    shape = ir.Shape(array.shape)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
