"""Hardware as data."""

from __future__ import annotations

import pytest

from optcc.errors import ConfigError
from optcc.targets.catalog import (
    default_targets,
    find_target,
    load_targets,
    target_from_table,
    targets_of,
)

GOOD = {
    "title": "T",
    "kind": "gpu",
    "compute_capability": [8, 9],
    "precisions": ["fp16"],
    "backends": ["b"],
    "default_for": ["b"],
}


def test_the_catalog_is_sorted_and_sound() -> None:
    targets = load_targets()
    assert list(targets)[:3] == ["cpu", "sm75", "sm80"]
    for name, target in targets.items():
        if target.compute_capability:
            assert name == "sm{}{}".format(*target.compute_capability)


def test_defaults() -> None:
    assert default_targets("tensorrt_rtx") == ("sm80", "sm86", "sm89", "sm120")
    assert default_targets("tensorrt") == ()
    assert default_targets("onnxruntime") == ("cpu",)
    assert "sm90" not in targets_of("tensorrt_rtx")
    assert "sm90" in targets_of("tensorrt")


def test_formats_follow_the_hardware() -> None:
    assert "fp8" not in find_target("sm86").precisions
    assert "fp8" in find_target("sm89").precisions
    assert "bf16" not in find_target("sm75").precisions


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="target 'SM_89' is not known") as caught:
        find_target("SM_89")
    assert caught.value.hint == "did you mean sm89?"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "tpu"}, "kind is 'tpu'"),
        ({"precisions": ["fp7"]}, "precision 'fp7' is not known"),
        ({"precisions": "fp16"}, "must be a list of names"),
        ({"default_for": ["other"]}, "default_for names 'other'"),
        ({"compute_capability": [8]}, r"must be \[major, minor\]"),
        ({"colour": "red"}, "key 'colour' is missing or not known"),
        ({"kind": "cpu"}, "compute_capability is for GPUs"),
    ],
)
def test_wrong_data_is_refused(change: dict[str, object], words: str) -> None:
    assert target_from_table("t", dict(GOOD)).compute_capability == (8, 9)
    with pytest.raises(ConfigError, match=words):
        target_from_table("t", {**GOOD, **change})


def test_a_missing_key_is_named() -> None:
    table = {k: v for k, v in GOOD.items() if k != "title"}
    with pytest.raises(ConfigError, match="key 'title' is missing"):
        target_from_table("t", dict(table))
