"""The passes together: what is left of typical blocks, the same numbers, the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import onnx_ir as ir
import pytest

from optcc.graph.io import to_bytes
from optcc.passkit.contract import Exactness, Pass
from optcc.passkit.testing import bare_context
from optcc.verify.numeric import Outcome, compare
from tests.models.blocks import residual_block, self_attention
from tests.passes.promise import apply, feed, ops, run

PASSES = [
    "passes.eliminate.identity:EliminateIdentity",
    "passes.fold.shapes:FoldShapes",
    "passes.fold.reshape_targets:FoldReshapeTargets",
    "passes.fold.constants:FoldConstants",
    "passes.eliminate.transpose_pairs:EliminateTransposePairs",
    "passes.fuse.clip_spelling:FuseClipSpelling",
    "passes.fuse.clip_chain:FuseClipChain",
    "passes.fuse.hard_sigmoid:FuseHardSigmoid",
    "passes.fuse.hard_swish:FuseHardSwish",
    "passes.fuse.gelu:FuseGelu",
    "passes.fuse.layernorm:FuseLayerNorm",
    "passes.fuse.rmsnorm:FuseRmsNorm",
    "passes.fuse.pad:FusePad",
    "passes.fuse.conv_batchnorm:FuseConvBatchNorm",
    "passes.fuse.gemm_batchnorm:FuseGemmBatchNorm",
    "passes.fuse.conv_affine:FuseConvAffine",
    "passes.fuse.gemm_affine:FuseGemmAffine",
    "passes.fuse.matmul_scale:FuseMatMulScale",
    "passes.fuse.conv_activation:FuseConvActivation",
    "passes.fuse.layernorm_linear:FuseLayerNormLinear",
    "passes.fuse.qkv:FuseQkv",
    "passes.fuse.attention:FuseAttention",
    "passes.fuse.matmul_bias:FuseMatMulBias",
    "passes.eliminate.duplicates:EliminateDuplicates",
    "passes.eliminate.dead:EliminateDead",
]

RESIDUAL = ["Conv", "Relu", "Conv", "Relu", "Conv", "Add", "Relu"]


def _passes() -> list[Pass]:
    made = []
    for place in PASSES:
        module, name = place.split(":")
        made.append(getattr(import_module(module), name)())
    return made


def _simplify(model: ir.Model) -> int:
    """Run rounds until nothing changes, and return how many changed something."""
    for turn in range(8):
        if not sum(len(apply(p, model).rewrites) for p in _passes()):
            return turn
    raise AssertionError("not stable after 8 rounds")


@pytest.mark.parametrize(
    ("make", "want", "sizes"),
    [
        (residual_block, [*RESIDUAL, "GlobalAveragePool", "Reshape", "Gemm"], [{"N": 1}, {"N": 3}]),
        (
            self_attention,
            [
                "Relu",
                "MatMul",
                "Split",
                *["Add"] * 3,
                *["Reshape", "Transpose"] * 3,
                "MatMul",
                "Mul",
                "Softmax",
                "MatMul",
                "Transpose",
                "Reshape",
                "MatMul",
            ],
            [{"N": 1, "S": 5}, {"N": 2, "S": 3}],
        ),
    ],
)
def test_what_is_left(
    make: Callable[[], ir.Model], want: list[str], sizes: list[dict[str, int]]
) -> None:
    model = make()
    feeds = [feed(model, seed=k, **size) for k, size in enumerate(sizes)]
    before = [run(model, f) for f in feeds]
    assert _simplify(model) <= 3
    assert sorted(ops(model)) == sorted(want)
    for inputs, reference in zip(feeds, before, strict=True):
        got = run(model, inputs)
        verdicts = [compare(a, got[n], Exactness.ROUNDING) for n, a in reference.items()]
        assert [v.outcome for v in verdicts] == [Outcome.OK]


@pytest.mark.parametrize("make", [residual_block, self_attention])
def test_same_model_same_bytes(make: Callable[[], ir.Model]) -> None:
    models = [make(), make()]
    for model in models:
        _simplify(model)
    assert to_bytes(models[0]) == to_bytes(models[1])


@pytest.mark.parametrize("a_pass", _passes(), ids=lambda p: p.name)
def test_every_pass_leaves_an_empty_graph_alone(a_pass: Pass) -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
    graph = ir.Graph([x], [x], nodes=[], opset_imports={"": 21}, name="empty")
    result = a_pass.run(ir.Model(graph, ir_version=10), bare_context())
    assert (result.rewrites, result.rejects) == ([], [])
