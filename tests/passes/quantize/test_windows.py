from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.edit import constant_of
from optcc.graph.io import to_bytes
from optcc.runtime.session import Session
from passes.quantize.windows import Geometry, geometry_of, input_rows
from tests.models.sketch import Sketch


def _model(spatial: list[int], kernel: list[int], channels: int, out: int, **options: object):  # type: ignore[no-untyped-def]
    s = Sketch()
    x = s.input("x", [2, channels, *spatial])
    group = options.get("group", 1)
    assert isinstance(group, int)
    weight = s.weight("w", out, channels // group, *kernel)
    s.output(s.op("Conv", x, weight, name="conv", **options), None)
    return s.model()


@pytest.mark.parametrize(
    ("spatial", "kernel", "channels", "options"),
    [
        ([7, 9], [3, 3], 4, {}),
        ([7, 9], [3, 2], 4, {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
        ([9, 9], [3, 3], 4, {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
        ([7, 9], [3, 3], 4, {"group": 2}),
        ([7, 9], [3, 3], 4, {"group": 4, "strides": [2, 1], "pads": [1, 1, 1, 1]}),
        ([11], [4], 3, {"strides": [2], "dilations": [2], "pads": [3, 0]}),
        ([8, 7], [3, 4], 2, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ([8, 7], [3, 4], 2, {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        ([8, 7], [3, 3], 2, {"auto_pad": "VALID"}),
        ([5, 4, 6], [2, 3, 2], 2, {"pads": [0, 1, 0, 1, 1, 0]}),
    ],
)
def test_rows_times_weight_are_what_the_runtime_gives(
    spatial: list[int], kernel: list[int], channels: int, options: dict[str, object]
) -> None:
    model = _model(spatial, kernel, channels, 8, **options)
    data = np.random.default_rng(1).standard_normal((2, channels, *spatial)).astype(np.float32)
    expected = next(iter(Session(to_bytes(model)).run({"x": data}).values()))
    node = model.graph[0]
    geometry = geometry_of(node)
    rows = input_rows(data, geometry, 10**6)
    weight = constant_of(node.inputs[1])
    assert weight is not None
    columns = weight.reshape(geometry.groups, 8 // geometry.groups, -1)
    products = np.einsum("gri,goi->rgo", rows, columns).reshape(2, -1, 8)
    wanted = np.moveaxis(expected.reshape(2, 8, -1), 1, 2)
    assert np.allclose(products, wanted, atol=1e-5)


def test_a_matrix_reads_the_last_axis() -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(input_rows(data, Geometry(), 100)[0], data.reshape(6, 4))


@pytest.mark.parametrize("op_type", ["Gemm", "MatMul"])
def test_products_have_no_kernel(op_type: str) -> None:
    node = ir.Node("", op_type, [])
    assert geometry_of(node) == Geometry()


def test_few_rows_are_spread_over_samples_and_positions() -> None:
    data = np.zeros((4, 1, 32, 32), np.float32)
    data[:] = np.arange(4)[:, None, None, None] * 1000 + np.arange(32)
    geometry = Geometry((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    seen = input_rows(data, geometry, 256).reshape(-1)
    assert len(seen) <= 256
    assert np.abs(np.bincount((seen // 1000).astype(int)) - 64).max() <= 2
    assert len(set((seen % 1000).tolist())) == 32, "every column is looked at"
    assert np.array_equal(seen, input_rows(data, geometry, 256).reshape(-1))


def test_a_kernel_larger_than_its_data_gives_no_rows() -> None:
    geometry = Geometry((5, 5), (1, 1), (1, 1), (0, 0, 0, 0))
    assert input_rows(np.zeros((1, 2, 3, 3), np.float32), geometry, 9).shape == (1, 0, 50)
