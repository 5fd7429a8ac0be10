"""A fused graph has the input gradients of the original."""

from __future__ import annotations

import numpy as np
import pytest

from optcc.graph.io import clone
from optcc.graph.walk import graphs_of
from optcc.passkit.contract import Exactness
from optcc.passkit.testing import bare_context
from optcc.pipeline.plan import load_plan
from optcc.pipeline.registry import discover_passes
from passes.fold.channel_order import FoldChannelOrder
from passes.fuse.batchnorm_linear import FuseBatchNormLinear
from passes.fuse.conv_batchnorm import FuseConvBatchNorm
from passes.fuse.layernorm import FuseLayerNorm
from passes.fuse.rmsnorm import FuseRmsNorm
from passes.layout.transpose import SinkTransposes
from tests.models.generated import Generated, generate, random_feeds
from tests.models.normalizations import layernorm, rmsnorm
from tests.models.regions import conv_bn
from tests.passes.fold.test_channel_order import gathered
from tests.passes.fuse.test_batchnorm_linear import normed
from tests.passes.layout.test_transpose import STEPS, between
from tests.passes.promise import feed
from tests.verify.gradients import gradient_error, input_gradients, widened
from tests.verify.wrong_passes.folds import BiasUnscaled, LastBias, OneSign, ScaleTwice

ALLOWED = 1e-6
SEEDS = (0, 9, 10, 11, 12, 15, 17, 18, 19, 21, 23, 28, 52)
NEVER = {"canonicalize.opset"}  # these graphs have the newest operator set
BY_HAND = {
    "fold.channel-order": (lambda: gathered(2, 1, 0).model(), FoldChannelOrder),
    "fuse.batchnorm-linear": (lambda: normed("Conv", ["N", 4, 6, 5]).model(), FuseBatchNormLinear),
    "fuse.layernorm": (lambda: layernorm().model(), FuseLayerNorm),
    "fuse.rmsnorm": (lambda: rmsnorm(square="mul", root="reciprocal").model(), FuseRmsNorm),
    "layout.transpose": (lambda: between(STEPS["softmax 1"]), SinkTransposes),
}
"""For the passes that find nothing in the generated graphs."""


def gradients_by_pass(made: Generated) -> dict[str, float]:
    """Run the preset; return the error of every rounding pass that changed the graph."""
    registry, model = discover_passes(), clone(made.model)
    point = list(random_feeds(made.model, 2, made.seed))[1]
    errors: dict[str, float] = {}
    names = [n for s in load_plan("fp32").stages for n in s.passes * 2]
    for one in map(registry.get, names):
        before = clone(model)
        changed = one.run(model, bare_context()).modified
        if changed and one.exactness is Exactness.ROUNDING:
            error = gradient_error(before, model, point, made.seed)
            errors[one.name] = max(error, errors.get(one.name, 0.0))
    return errors


def test_every_rounding_pass_keeps_the_input_gradients():
    found: dict[str, float] = {}
    for seed in SEEDS:
        made = generate(seed)
        for name, error in gradients_by_pass(made).items():
            assert error < ALLOWED, (made.label, name)
            found[name] = max(error, found.get(name, 0.0))
    registry = discover_passes()
    names = {n for s in load_plan("fp32").stages for n in s.passes}
    rounding = {n for n in names if registry.get(n).exactness is Exactness.ROUNDING}
    assert set(found) == rounding - NEVER - set(BY_HAND)


@pytest.mark.parametrize("name", BY_HAND)
def test_passes_with_models_of_their_own_keep_the_input_gradients(name):
    make, one = BY_HAND[name]
    before, after = make(), make()
    assert one.name == name
    assert one().run(after, bare_context()).modified
    assert gradient_error(before, after, feed(before, N=2)) < ALLOWED


@pytest.mark.parametrize("twin", [ScaleTwice, OneSign])
def test_a_wrong_weight_changes_the_gradient(twin):
    model, broken = conv_bn(), conv_bn()
    assert twin().run(broken, bare_context()).modified
    assert gradient_error(model, broken, feed(model, batch=2)) > 0.01


@pytest.mark.parametrize("twin", [FuseConvBatchNorm, LastBias, BiasUnscaled])
def test_a_wrong_bias_of_a_linear_graph_does_not(twin):
    model, other = conv_bn(), conv_bn()
    assert twin().run(other, bare_context()).modified
    assert gradient_error(model, other, feed(model, batch=2)) < ALLOWED


def test_differences_are_those_of_the_derivative():
    made = generate(3)  # a chain of smooth layers
    model, point = made.model, next(iter(random_feeds(made.model, 1)))
    slopes = input_gradients(model, point, seed=5)
    again = input_gradients(model, {n: a + 1e-9 for n, a in point.items()}, seed=5)
    for name, array in slopes.items():
        assert array.any()
        np.testing.assert_allclose(array, again[name], rtol=1e-4, atol=1e-6)


def test_widening_leaves_no_narrow_float():
    for seed in range(28):
        wide = widened(generate(seed).model)
        values = [v for g in graphs_of(wide) for v in (*g.inputs, *g.initializers.values())]
        assert not {v.dtype.name for v in values} & {"FLOAT", "FLOAT16"}
