from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.matcher import Match
from passes.fuse.pad import FusePad
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

ZEROS = [0, 0, 0, 0]


def _padded(
    around: list[int],
    reader: str = "Conv",
    *,
    mode: str = "constant",
    number: float | None = None,
    axes: list[int] | None = None,
    **attributes: object,
) -> Sketch:
    """x [N, 2, 6, 7] -> Pad -> Conv or pool with a 3x2 kernel."""
    s = Sketch()
    inputs: list[ir.Value | None] = [s.input("x", ["N", 2, 6, 7]), s.integers("pads", *around)]
    inputs.append(None if number is None else s.constant("number", np.float32(number)))
    inputs += [] if axes is None else [s.integers("axes", *axes)]
    padded = s.op("Pad", *inputs, name="pad", mode=mode)
    if reader == "Conv":
        y = s.op("Conv", padded, s.weight("w", 3, 2, 3, 2), name="reader", **attributes)
    else:
        y = s.op(reader, padded, name="reader", kernel_shape=[3, 2], **attributes)
    s.output(y, None)
    return s


SMALL = st.integers(0, 1)


@settings(deadline=None, max_examples=25)
@given(
    reader=st.sampled_from(["Conv", "AveragePool"]),
    pad=st.lists(SMALL, min_size=4, max_size=4),
    number=st.sampled_from([None, 0.0]),
)
def test_same_numbers(reader: str, pad: list[int], number: float | None) -> None:
    pads = [0, 0, *pad[:2], 0, 0, *pad[2:]]
    model = _padded(pads, reader, number=number, strides=[2, 1]).model()
    keeps(FusePad(), model, [feed(model, N=n) for n in (1, 2)])
    assert ops(model) == [reader]


def test_adds_to_the_pads_of_the_conv() -> None:
    model = _padded([0, 0, 1, 2, 0, 0, 0, 1], pads=[1, 0, 2, 1]).model()
    keeps(FusePad(), model, [feed(model, N=2)])
    assert list(model.graph[0].attributes.get_ints("pads")) == [2, 2, 2, 2]


def test_axes_and_valid_padding() -> None:
    model = _padded([3, 1], axes=[-2], auto_pad="VALID").model()
    keeps(FusePad(), model, [feed(model, N=1)])
    assert list(model.graph[0].attributes.get_ints("pads")) == [3, 0, 1, 0]
    assert "auto_pad" not in model.graph[0].attributes


def test_pool_that_counts_its_padding() -> None:
    pads = [0, 0, 1, 0, 0, 0, 1, 1]
    model = _padded(pads, "AveragePool", pads=[1, 0, 0, 0], count_include_pad=1).model()
    keeps(FusePad(), model, [feed(model, N=1)])


@pytest.mark.parametrize(
    ("pads", "options", "reason"),
    [
        ([0, 0, -1, 1, 0, 0, 2, -1], {"pads": [1, 1, 1, 1]}, "a negative pad crops"),
        ([0, 0, 1, 1, 0, 0, 1, 1], {"mode": "reflect"}, "the mode of the Pad is 'reflect'"),
        ([0, 0, 1, 1, 0, 0, 1, 1], {"number": 1.0}, "it pads with 'number', not with 0"),
        ([1, 0, 0, 0, 0, 0, 0, 0], {}, "axis 0 is padded"),
        ([0, 0, 1, 1, 0, 0, 1, 1], {"auto_pad": "SAME_UPPER"}, "auto_pad is 'SAME_UPPER'"),
    ],
)
def test_leaves_alone(pads: list[int], options: dict[str, object], reason: str) -> None:
    result = apply(FusePad(), _padded(pads, **options).model())
    assert reasons(result) == [("reader", reason)]


@pytest.mark.parametrize(
    ("pads", "options", "reason"),
    [
        ([1, 1], {"pads": [1, 0, 0, 0]}, "the pool leaves its own padding out of the mean"),
        ([1, 1], {"ceil_mode": 1}, "ceil_mode places windows by the padding"),
        ([3, 1], {}, "pads reach kernel"),
    ],
)
def test_leaves_pools_alone(pads: list[int], options: dict[str, object], reason: str) -> None:
    model = _padded(pads, "AveragePool", axes=[2], **options).model()
    assert reasons(apply(FusePad(), model)) == [("reader", reason)]


def test_leaves_max_pooling_alone() -> None:
    model = _padded([0, 0, 1, 1, 0, 0, 1, 1], "MaxPool").model()
    assert not apply(FusePad(), model).rewrites


def test_leaves_computed_pads_alone() -> None:
    s = Sketch()
    pads = s.input("pads", [8], ir.DataType.INT64)
    padded = s.op("Pad", s.input("x", [1, 2, 6, 7]), pads)
    s.output(s.op("Conv", padded, s.weight("w", 3, 2, 3, 2), name="reader"), None)
    assert reasons(apply(FusePad(), s.model())) == [("reader", "the pads are not constant")]


def test_leaves_a_pad_with_two_readers_alone() -> None:
    s = _padded([0, 0, 1, 1, 0, 0, 1, 1])
    s.output(s.op("Relu", s.graph[0].outputs[0], name="other"), None)
    [(node, reason)] = reasons(apply(FusePad(), s.model()))
    assert (node, reason) == ("reader", "value 'pad_out' is also read by 'other'")


class Swapped(FusePad):
    def rewrite(self, m: Match, graph: ir.Graph):
        [y] = super().rewrite(m, graph)
        top, left, bottom, right = y.producer().attributes.get_ints("pads")
        y.producer().attributes["pads"] = ir.AttrInt64s("pads", [bottom, left, top, right])
        return [y]


def test_runner_catches_a_broken_twin() -> None:
    assert "at 'reader'" in caught(Swapped(), _padded([0, 0, 1, 0, 0, 0, 0, 0]).model())
