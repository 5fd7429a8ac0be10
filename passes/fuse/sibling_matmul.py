"""MatMuls with constant weights that read one value -> one MatMul and a Split.

x @ w0, x @ w1, ... = split(x @ [w0 w1 ...])
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import add_constant, constant_of, fresh_name, is_constant, replace_node
from optcc.graph.shapes import static_dims
from optcc.passkit.contract import (
    Exactness,
    Fact,
    PassContext,
    PassResult,
    Rejection,
    Rewrite,
)
from optcc.passkit.rewrite import default_opset, drop_unused_constants, sign_nodes
from passes.fuse.channels import FLOATS

__all__ = ["FuseSiblingMatMul"]

_FIRST_OPSET = 13


class FuseSiblingMatMul:
    """Merge the products of one value with several matrices: Q, K and V of self-attention.

    Biases stay on their branches. Weights of different type or depth, and weights that others
    read, are not merged; products of different values never are.

    Keeps: graph inputs and outputs, their names, types and shapes; every dot product. Only the
    order of a sum may change.
    """

    name = "fuse.sibling-matmul"
    exactness = Exactness.ROUNDING
    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Merge each family of products, in the order of its first member."""
        result = PassResult()
        if default_opset(model) < _FIRST_OPSET:
            return result
        for graph in list(model.graphs()):
            families: dict[Hashable, list[ir.Node]] = {}
            for node in graph:
                key = _family(node, result)
                if key is not None:
                    families.setdefault(key, []).append(node)
            for nodes in families.values():
                if len(nodes) > 1:
                    _merge(graph, nodes, ctx, result, self.name)
        return result


def _family(node: ir.Node, result: PassResult) -> Hashable | None:
    """Return what siblings have in common, or None for a node that has none."""
    if node.op_type != "MatMul" or node.domain != "":
        return None
    x, w = node.inputs
    if x is None or w is None or not is_constant(w) or is_constant(x) or w.dtype not in FLOATS:
        return None
    dims = static_dims(w)
    if dims is None or len(dims) != 2 or not _has_siblings(x, node):
        return None
    if len(w.uses()) > 1 or w.is_graph_output():
        result.rejects.append(
            Rejection(node.name or "", f"weight {w.name!r} is also read elsewhere")
        )
        return None
    return x, w.dtype, dims[0]


def _has_siblings(x: ir.Value, node: ir.Node) -> bool:
    readers = {use.node for use in x.uses() if use.node.op_type == "MatMul" and use.idx == 0}
    return len(readers - {node}) > 0


def _merge(
    graph: ir.Graph, nodes: Sequence[ir.Node], ctx: PassContext, result: PassResult, name: str
) -> None:
    x = nodes[0].inputs[0]
    assert x is not None
    outputs = [n.outputs[0] for n in nodes if n.outputs[0].uses() or n.outputs[0].is_graph_output()]
    if len(outputs) < len(nodes):
        return
    members = ", ".join(repr(n.name) for n in nodes)
    record = Rewrite(nodes[0].name or "", f"MatMul of {members} as one", (x,), tuple(outputs))
    if ctx.apply(record, lambda: _rewrite(graph, nodes, x, outputs, name)):
        result.rewrites.append(record)


def _rewrite(
    graph: ir.Graph, nodes: Sequence[ir.Node], x: ir.Value, outputs: list[ir.Value], name: str
) -> list[ir.Value]:
    weights = [n.inputs[1] for n in nodes]
    arrays = [a for w in weights if (a := constant_of(w)) is not None]
    first = outputs[0].name
    merged = add_constant(graph, f"{first}.siblings.weight", np.concatenate(arrays, axis=1))
    sizes = np.array([a.shape[1] for a in arrays], np.int64)
    lengths = add_constant(graph, f"{first}.siblings.sizes", sizes)
    product = ir.Node("", "MatMul", [x, merged])
    product.outputs[0].name = fresh_name(graph, f"{first}.siblings")
    product.outputs[0].type = outputs[0].type
    axis = {"axis": ir.AttrInt64("axis", -1)}
    inputs = [product.outputs[0], lengths]
    split = ir.Node("", "Split", inputs, axis.values(), num_outputs=len(outputs))
    sign_nodes([product, split], name)
    standing = replace_node(graph, nodes, [product, split], outputs, list(split.outputs))
    drop_unused_constants(weights)
    return standing
