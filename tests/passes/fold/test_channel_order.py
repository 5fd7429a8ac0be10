from __future__ import annotations

import numpy as np
import pytest

from optcc.passkit.matcher import Match
from passes.fold.channel_order import FoldChannelOrder
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def gathered(*indices: int, axis: int = 1, channels: int = 3, **attributes: object) -> Sketch:
    s = Sketch()
    x = s.input("x", ["N", channels, 6, 6])
    y = s.op("Gather", x, s.integers("indices", *indices), name="order", axis=axis)
    group = int(str(attributes.get("group", 1)))
    w = s.weight("w", 6, len(indices) // group if axis == 1 else 3, 3, 3)
    s.output(s.op("Conv", y, w, s.weight("b", 6), name="conv", **attributes), None)
    return s


def sliced(start: int, end: int, step: int, channels: int = 3) -> Sketch:
    s = Sketch()
    x = s.input("x", ["N", channels, 6, 6])
    numbers = [s.integers(n, v) for n, v in zip("abcd", (start, end, 1, step), strict=True)]
    y = s.op("Slice", x, *numbers, name="order")
    s.output(s.op("Conv", y, s.weight("w", 6, channels, 3, 3), name="conv"), None)
    return s


@pytest.mark.parametrize("indices", [(2, 1, 0), (1, 2, 0), (-1, 1, 0), (0, 1, 2)])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_a_gather_goes_into_the_weight(indices, pads) -> None:
    model = gathered(*indices, pads=pads).model()
    keeps(FoldChannelOrder(), model, [feed(model, N=2)])
    assert ops(model) == ["Conv"]


@pytest.mark.parametrize("bounds", [(-1, -(2**31), -1), (2, -4, -1), (99, -99, -1)])
def test_a_reversed_slice_goes_into_the_weight(bounds) -> None:
    model = sliced(*bounds).model()
    keeps(FoldChannelOrder(), model, [feed(model, N=2)])
    assert ops(model) == ["Conv"]


def test_channels_left_out_or_read_twice_stay() -> None:
    wanted = [("conv", "it does not keep every channel")]
    assert reasons(apply(FoldChannelOrder(), gathered(0, 1, 1).model())) == wanted
    assert reasons(apply(FoldChannelOrder(), gathered(0, 1, channels=3).model())) == wanted


def test_groups_stay() -> None:
    result = apply(FoldChannelOrder(), gathered(1, 0, channels=2, group=2).model())
    assert reasons(result) == [("conv", "the Conv has groups")]


def test_another_axis_is_no_match() -> None:
    result = apply(FoldChannelOrder(), gathered(5, 4, 3, 2, 1, 0, axis=2).model())
    assert (result.rewrites, result.rejects) == ([], [])


class InverseOrder(FoldChannelOrder):
    """The classic fault: the weight is permuted the wrong way round."""

    def rewrite(self, m: Match, graph):
        m.value("indices").const_value.numpy()[:] = np.argsort(m.array("indices"))
        return super().rewrite(m, graph)


def test_runner_catches_a_broken_twin() -> None:
    assert "at 'conv'" in caught(InverseOrder(), gathered(1, 2, 0).model())
