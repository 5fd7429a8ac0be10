from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.graph.signature import signature_of
from optcc.verify.bounds import bounds_of
from optcc.verify.probes import make_probes, probe_sizes
from tests.models.regions import text
from tests.verify.rewrites import profile


def probes_of(model: ir.Model, samples=(), seed: int = 0, shapes: ShapeProfile | None = None):
    return make_probes(model, signature_of(model), shapes or profile(model), samples, seed)


def drawn(model: ir.Model, name: str) -> np.ndarray:
    return np.concatenate([p[name].ravel() for p in probes_of(model)])


def test_a_free_batch_gets_two_sizes():
    model = text("g (float[batch, 4] x) => (float[batch, 4] y) { y = Neg(x) }")
    assert [p["x"].shape for p in probes_of(model)] == [(1, 4), (3, 4)]


def test_a_fixed_shape_gets_two_different_contents():
    model = text("g (float[2, 4] x) => (float[2, 4] y) { y = Neg(x) }")
    first, second = probes_of(model)
    assert first["x"].shape == second["x"].shape == (2, 4)
    assert not np.array_equal(first["x"], second["x"])


def test_other_free_dims_get_the_ends_of_the_profile():
    model = text("g (float[batch, 3, h, h] x) => (float[batch, 3, h, h] y) { y = Neg(x) }")
    ends = InputShapes(name="x", min=(1, 3, 32, 32), opt=(4, 3, 64, 64), max=(8, 3, 96, 96))
    shapes = [p["x"].shape for p in probes_of(model, shapes=ShapeProfile((ends,), "--shapes"))]
    assert shapes == [(1, 3, 32, 32), (3, 3, 64, 64)]


def test_a_symbol_has_one_size_in_all_inputs():
    model = text(
        "g (float[batch, 4] x, float[2, batch, 4] state) => (float[2, batch, 4] y)"
        "{ y = Add(x, state) }"
    )
    inputs = (
        InputShapes(name="x", min=(1, 4), opt=(8, 4), max=(8, 4)),
        InputShapes(name="state", min=(2, 1, 4), opt=(2, 8, 4), max=(2, 8, 4)),
    )
    sizes = probe_sizes(signature_of(model), ShapeProfile(inputs, "samples"))
    assert sizes[1] == {"x": (3, 4), "state": (2, 3, 4)}


def test_sizes_that_do_not_fit_are_passed_over():
    model = text(
        "g (float[a, 4] x, float[b, 4] z) => (float[a, 4] y) <int64[2] s = {2, 4}>"
        "{ r = Reshape(x, s) t = Reshape(z, s) y = Add(r, t) }"
    )
    ends = tuple(InputShapes(name=n, min=(1, 4), opt=(2, 4), max=(4, 4)) for n in "xz")
    probes = probes_of(model, shapes=ShapeProfile(ends, "--shapes"))
    assert [p["x"].shape for p in probes] == [(2, 4), (2, 4)]
    assert not np.array_equal(probes[0]["x"], probes[1]["x"])


def test_integers_stay_inside_the_table_that_they_index():
    model = table_model()
    ids = drawn(model, "x")
    assert ids.min() >= 0
    assert ids.max() < 5
    assert len(set(ids.tolist())) > 2


def table_model() -> ir.Model:
    return text(
        "g (int32[batch, 6] x) => (float[batch, 6, 2] y)"
        "<float[5, 2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}>"
        "{ c = Cast<to = 7>(x) y = Gather(table, c) }"
    )


def test_one_hot_limits_its_indices():
    model = text(
        "g (int64[batch] x) => (float[batch, 3] y) <int64 depth = {3}, float[2] v = {0, 1}>"
        "{ y = OneHot(x, depth, v) }"
    )
    assert drawn(model, "x").max() < 3


def test_numbers_that_the_model_compares_with_are_tried():
    model = text(
        "g (float[2] x, int64 rate) => (float[2] y) <int64 r = {16000}>"
        "{ [e] c = Equal(rate, r) f = Cast<to = 1>(c) y = Mul(x, f) }"
    )
    assert set(drawn(model, "rate").tolist()) == {16000}


def test_a_mask_is_mixed_and_never_empty():
    model = text(
        "g (float[batch, 5] x, int64[batch, 5] mask) => (float[batch, 5] y)"
        "{ f = Cast<to = 1>(mask) y = Mul(x, f) }"
    )
    masks = [p["mask"] for p in probes_of(model)]
    assert {int(v) for m in masks for v in m.ravel()} == {0, 1}
    assert all((m[:, 0] == 1).all() for m in masks)


def test_bools_are_mixed():
    model = text("g (bool[batch, 16] x) => (bool[batch, 16] y) { y = Not(x) }")
    assert set(drawn(model, "x").tolist()) == {True, False}


def test_an_input_of_a_logarithm_is_positive():
    model = text("g (float[batch, 16] x) => (float[batch, 16] y) { y = Log(x) }")
    assert drawn(model, "x").min() > 0


def test_half_precision_inputs_are_drawn_in_their_type():
    model = text("g (float16[batch, 4] x) => (float16[batch, 4] y) { y = Neg(x) }")
    assert probes_of(model)[0]["x"].dtype == np.float16


def test_real_samples_give_the_contents():
    model = text("g (float[batch, 4] x) => (float[batch, 4] y) { y = Neg(x) }")
    samples = [
        {"x": np.full((2, 4), k, np.float32) + np.arange(4, dtype=np.float32)} for k in (5, 9)
    ]
    first, second = probes_of(model, samples)
    assert first["x"].shape == (1, 4)
    assert np.array_equal(first["x"][0], samples[0]["x"][0])
    assert second["x"].shape == (3, 4)
    assert np.array_equal(second["x"][2], samples[1]["x"][0])


def test_the_seed_decides():
    model = text("g (float[batch, 4] x) => (float[batch, 4] y) { y = Neg(x) }")
    same = [probes_of(model, seed=7)[1]["x"] for _ in range(2)]
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], probes_of(model, seed=8)[1]["x"])


def test_texts_cannot_be_made_up():
    model = text("g (string[batch] x) => (string[batch] y) { y = Identity(x) }")
    assert probes_of(model) == []
    assert bounds_of(model, signature_of(model).inputs[0]).dtype is None


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_choice_wins_over_a_mask(shape):
    model = text("g (int64[n] x) => (bool[n] y) <int64[2] c = {4, 9}> { y = Equal(x, c) }")
    bounds = bounds_of(model, signature_of(model).inputs[0])
    values = bounds.draw(shape, np.random.default_rng(0))
    assert values is not None
    assert set(np.ravel(values).tolist()) <= {4, 9}
