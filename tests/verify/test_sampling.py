from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.graph.shapes import infer_shapes
from optcc.runtime.session import Session
from optcc.verify.draw import SPREADS, draw_like, draw_spread
from optcc.verify.observe import observe, see
from optcc.verify.sampling import with_samples
from tests.models.regions import text


def sampled(body: str, x: np.ndarray, names: list[str], floats: int = 8, others: int = 16):
    kind = {"f": "float", "i": "int64", "b": "bool"}[x.dtype.kind]
    model = text(f"g ({kind}[{','.join('abcd'[: x.ndim])}] x) => ({kind}[n] y) {{ {body} }}")
    infer_shapes(model)
    made = with_samples(model, names, floats, others)
    results = Session(to_bytes(made.model)).run({"x": x})
    return {n: (results[d], results[e]) for n, (d, e) in made.outputs.items()}


@pytest.mark.parametrize("shape", [(7,), (8,), (15,), (16,), (10, 10), (0, 3), (3, 5, 7)])
def test_dims_and_evenly_spread_elements(shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    body = "v = Neg(x) f = Constant<value_ints = [-1]>() y = Reshape(v, f)"
    dims, some = sampled(body, x, ["v"])["v"]
    assert tuple(dims) == shape
    step = max(1, x.size // 8)
    np.testing.assert_array_equal(some, -x.reshape(-1)[::step])
    assert x.size <= 8 or 8 <= some.size < 16


def test_a_scalar_and_other_types():
    x = np.arange(100).astype(np.int64)
    body = "v = Neg(x) s = ReduceSum<keepdims = 0>(v) b = Greater(v, s) y = Add(v, s)"
    found = sampled(body, x, ["v", "s", "b"])
    assert found["s"][0].size == 0
    assert found["s"][1].tolist() == [-x.sum()]
    assert 16 <= found["v"][1].size < 32
    assert found["b"][1].dtype == np.bool_


def test_the_model_stays_as_it_was():
    model = text("g (float[a] x) => (float[a] y) { v = Neg(x) y = Abs(v) }")
    before = to_bytes(model)
    with_samples(model, ["v"], 8, 8)
    assert to_bytes(model) == before


@pytest.mark.parametrize("opset", [11, 21])
def test_old_models_are_observed_alike(opset):
    def made() -> ir.Model:
        model = text("g (float[b, 4000] x) => (float[b, 4000] y) { v = Neg(x) y = Abs(v) }")
        model.graph.opset_imports[""] = opset
        return model

    feeds = [{"x": np.linspace(0, 1, 4000 * b, dtype=np.float32).reshape(b, -1)} for b in (1, 3)]
    for found in observe(made(), feeds).seen["v"]:
        assert found.value is None
        assert found.sample.size == 512
        assert found.sample[0] == 0
        assert found.sample.min() < -0.99


@pytest.mark.parametrize("shape", [(3, 128, 768), (2, 16381), (4, 16, 32, 32)])
def test_drawn_rows_are_never_alike(shape):
    seen = see(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    for drawn in (
        draw_like(seen, np.random.default_rng(1), fixed=False),
        draw_spread(seen, np.random.default_rng(1), fixed=False, spread=SPREADS[0]),
    ):
        assert drawn.shape == shape
        first = drawn.reshape(shape[0], -1)
        alike = np.all(first[0] == first[1])
        assert not alike or shape[1] == 16381
