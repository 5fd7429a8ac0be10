"""config.shapes: `--shapes` is read strictly, and every free dim has a source."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.config.shapes import InputShapes, parse_shapes, profile_for
from optcc.errors import ConfigError
from optcc.graph.signature import Signature, TensorSpec


def signature(**inputs: tuple | None) -> Signature:
    specs = [TensorSpec(name, ir.DataType.FLOAT, dims) for name, dims in inputs.items()]
    return Signature(tuple(specs), ())


def spans(profile) -> dict[str, tuple]:
    return {i.name: (i.min, i.opt, i.max) for i in profile.inputs}


def test_three_forms():
    shapes = parse_shapes("a:1x3, b:0:2x4..8x4 ,c:1x2..2x2..9x2")
    assert shapes["a"] == InputShapes(name="a", min=(1, 3), opt=(1, 3), max=(1, 3))
    assert shapes["b:0"] == InputShapes(name="b:0", min=(2, 4), opt=(2, 4), max=(8, 4))
    assert shapes["c"].opt == (2, 2)
    assert shapes["a"].is_static
    assert not shapes["c"].is_static


dims = st.lists(st.integers(1, 4096), min_size=1, max_size=5)


@given(low=dims, extra=st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read(low: list[int], extra):
    more = extra.draw(st.lists(st.integers(0, 9), min_size=len(low), max_size=len(low)))
    high = [a + b for a, b in zip(low, more, strict=True)]
    text = "x".join(map(str, low)) + ".." + "x".join(map(str, high))
    shapes = parse_shapes(f"x:{text}")["x"]
    assert (shapes.min, shapes.opt, shapes.max) == (tuple(low), tuple(low), tuple(high))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1x3", "'1x3', which is not NAME:SHAPE"),
        ("", "'', which is not NAME:SHAPE"),
        ("x:1x-3", "'1x-3' for 'x'"),
        ("x:0x3", "'0x3' for 'x'"),
        ("x:1x3..2", "different rank for 'x'"),
        ("x:4..2", "not in rising order"),
        ("x:1..9..4", "not in rising order"),
        ("x:1..2..3..4", "4 shapes for 'x'"),
        ("x:1,x:2", "input 'x' twice"),
    ],
)
def test_unreadable_text_is_named(text: str, reason: str):
    with pytest.raises(ConfigError) as error:
        parse_shapes(text)
    assert reason in error.value.what


def test_static_model_needs_nothing():
    profile = profile_for(signature(x=(1, 3), s=()), None)
    assert profile.source == "static"
    assert spans(profile) == {"x": ((1, 3),) * 3, "s": ((),) * 3}


def test_free_batch_is_one_to_sixteen():
    profile = profile_for(signature(x=("N", 3), y=(None, 2)), None)
    assert profile.source == "default"
    assert spans(profile) == {
        "x": ((1, 3), (1, 3), (16, 3)),
        "y": ((1, 2), (1, 2), (16, 2)),
    }


def test_samples_tell_the_other_dims():
    observed = {"x": [(4, 10), (4, 30), (4, 20)]}
    profile = profile_for(signature(x=("N", "T")), None, observed)
    assert profile.source == "samples"
    assert spans(profile) == {"x": ((1, 10), (4, 20), (16, 30))}


def test_larger_batches_of_samples_widen_the_range():
    profile = profile_for(signature(x=("N", 3)), None, {"x": [(64, 3)]})
    assert spans(profile) == {"x": ((1, 3), (64, 3), (64, 3))}


def test_shapes_win_over_samples_and_reach_equal_symbols():
    profile = profile_for(
        signature(ids=("B", "T"), mask=("B", "T"), state=(2, "B", 8)),
        "ids:1x16..4x64",
        {"mask": [(2, 32)]},
    )
    assert profile.source == "--shapes"
    assert spans(profile) == {
        "ids": ((1, 16), (1, 16), (4, 64)),
        "mask": ((1, 16), (1, 16), (4, 64)),
        "state": ((2, 1, 8), (2, 1, 8), (2, 4, 8)),
    }


def test_batch_symbol_counts_wherever_it_stands():
    profile = profile_for(signature(x=("B", 4), state=(2, "B", 8)), None)
    assert spans(profile)["state"] == ((2, 1, 8), (2, 1, 8), (2, 16, 8))


def test_unknown_rank_from_samples():
    profile = profile_for(signature(x=None), None, {"x": [(2, 3), (4, 3)]})
    assert spans(profile) == {"x": ((1, 3), (4, 3), (16, 3))}


@pytest.mark.parametrize("dims", [("N", 3, "H", "W"), ("N", "T"), (1, None)])
def test_no_source_gives_a_line_to_paste(dims: tuple):
    with pytest.raises(ConfigError) as error:
        profile_for(signature(x=dims, y=(1, 2)), None)
    assert "input 'x' has free dims" in error.value.what
    text = error.value.hint.split("--shapes ")[1].strip("'")
    assert profile_for(signature(x=dims, y=(1, 2)), text).source == "--shapes"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("z:1x3", "--shapes names 'z', the inputs are 'x'"),
        ("x:1x3x3", "--shapes gives 1x3x3 for input 'x', which is Nx3"),
        ("x:1x3..2x4", "--shapes"),
        ("x:2x5", "--shapes gives 2x5 for input 'x'"),
    ],
)
def test_shapes_that_contradict_the_model(text: str, reason: str):
    with pytest.raises(ConfigError) as error:
        profile_for(signature(x=("N", 3)), text)
    assert reason in error.value.what


def test_samples_that_contradict_the_model():
    with pytest.raises(ConfigError, match="a sample gives 1x4 for input 'x', which is Nx3"):
        profile_for(signature(x=("N", 3)), None, {"x": [(1, 4)]})
