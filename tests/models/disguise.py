"""Change how a model looks and nothing that it computes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.edit import is_constant
from optcc.passkit.pattern import COMMUTATIVE

__all__ = ["disguise"]


def disguise(model: ir.Model, seed: int) -> ir.Model:
    """Rename inner values and nodes, swap operands that commute, put Identities between nodes."""
    rng = np.random.default_rng(seed)
    for number, node in enumerate(list(model.graph)):
        if node.op_type in COMMUTATIVE and len(node.inputs) == 2 and rng.random() < 0.5:
            first, second = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
        node.name = f"n{rng.integers(1 << 30)}.{number}"
        for value in node.outputs:
            if not value.is_graph_output():
                value.name = f"v{rng.integers(1 << 30)}.{number}"
        for index, value in enumerate(node.inputs):
            if value is not None and not is_constant(value) and rng.random() < 0.3:
                carrier = ir.Node("", "Identity", [value], name=f"{node.name}.identity{index}")
                carrier.outputs[0].name = f"{node.name}.carried{index}"
                carrier.outputs[0].type, carrier.outputs[0].shape = value.type, value.shape
                model.graph.insert_before(node, carrier)
                node.replace_input_with(index, carrier.outputs[0])
    return model
