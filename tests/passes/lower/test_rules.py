from __future__ import annotations

from passes.lower.onnxruntime import LowerOnnxruntime
from passes.lower.rules import SPELLINGS, spelling_rules
from passes.lower.tensorrt import LowerTensorrt
from tests.models.layers import residual_block
from tests.passes.lower.spelled import constant, dequantizer, node, prepared, spell


def test_the_rules_have_the_grids_that_are_written() -> None:
    model = residual_block()
    context = prepared(model)
    assert context.plan is not None
    assert context.ranges is not None
    rules = spelling_rules(model.graph, context.plan, context.ranges, "vnni")
    written = (spell(LowerTensorrt(), model)[0], spell(LowerOnnxruntime(), model)[0])
    assert tuple(rules) == SPELLINGS
    for spelled, rule in zip(written, rules.values(), strict=True):
        grid = rule.grids["stem_relu_out"]
        read = dequantizer(node(spelled, "first"), 0)
        assert constant(read, 1) == grid.scale_array
        assert constant(read, 2) == grid.zero_point_array


def test_seven_bits_are_for_the_unsigned_kernels_only() -> None:
    model = residual_block()
    context = prepared(model)
    assert context.plan is not None
    assert context.ranges is not None
    rules = spelling_rules(model.graph, context.plan, context.ranges, "avx2")
    assert {s: r.qmax for s, r in rules.items()} == {"signed": 127, "unsigned": 64}


def test_pairs_are_safe_where_a_kernel_adds_them_in_16_bits() -> None:
    model = residual_block()
    context = prepared(model)
    plan = context.plan
    assert plan is not None
    assert context.ranges is not None
    rules = spelling_rules(model.graph, plan, context.ranges, "vnni")
    units = [u for u in plan.units if u.weight is not None]
    assert all(rules["unsigned"].safe_pairs(u, plan) for u in units)
    assert not any(rules["signed"].safe_pairs(u, plan) for u in units)
