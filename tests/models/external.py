"""A model whose weight lies in a data file, spelled as the test wants it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

__all__ = ["WEIGHT", "external_model", "write_data"]

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def external_model(path: Path, location: str, **entries: int | str) -> Path:
    """Write y = x @ w to `path`; w is said to lie at `location`."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=WEIGHT.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(onnx.ModelProto.SerializeToString(model))
    return path


def write_data(path: Path, *, before: int = 0) -> Path:
    """Write the bytes of the weight after `before` other bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\xff" * before + WEIGHT.tobytes())
    return path
