"""Outcomes as data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optcc.backends.contract import (
    PRECISION_BITS,
    Backend,
    BuildOutcome,
    BuildStatus,
    NodeAchieved,
)
from optcc.backends.onnxruntime import OnnxRuntime
from optcc.backends.tensorrt import Tensorrt
from optcc.backends.tensorrt_rtx import TensorrtRtx


def entry(wanted: str, got: str, node: str = "n") -> NodeAchieved:
    return NodeAchieved(node=node, op_type="Conv", wanted=wanted, got=got)


@pytest.mark.parametrize(
    ("wanted", "got", "falls_back"),
    [
        ("int8", "fp32", True),
        ("int8", "fp16", True),
        ("int8", "int8", False),
        ("int8", "fp8", False),
        ("int8", "unknown", False),
        ("int8", "folded", False),
        ("fp16", "fp32", True),
        ("fp16", "int8", False),
        ("fp32", "fp16", False),
        ("", "fp32", False),
    ],
)
def test_a_fallback_is_wider_than_wanted(wanted: str, got: str, falls_back: bool) -> None:
    assert entry(wanted, got).is_fallback is falls_back


@given(st.sampled_from(sorted(PRECISION_BITS)), st.sampled_from(sorted(PRECISION_BITS)))
def test_never_both_ways(one: str, other: str) -> None:
    assert not (entry(one, other).is_fallback and entry(other, one).is_fallback)


def test_counts_and_fallbacks() -> None:
    nodes = (entry("int8", "int8", "a"), entry("int8", "fp32", "b"), entry("", "fp32", "c"))
    outcome = BuildOutcome(status=BuildStatus.BUILT, nodes=nodes)
    assert outcome.achieved() == {"fp32": 2, "int8": 1}
    assert [n.node for n in outcome.fallbacks()] == ["b"]


@pytest.mark.parametrize("made", [OnnxRuntime, Tensorrt, TensorrtRtx])
def test_every_backend_keeps_the_protocol(made: type) -> None:
    backend = made()
    assert isinstance(backend, Backend)
    assert isinstance(backend.availability().ok, bool)
