import re
from xml.etree import ElementTree

import pytest

from optcc.report.charts import Bar, Mark, Stack, bar_chart, stack_chart


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def bars(svg: str) -> list[tuple[float, float]]:
    return [(float(r.get("x", "")), float(r.get("width", ""))) for r in parse(svg).iter("rect")]


def bar(value: float, **changes: object) -> Bar:
    return Bar(**{"label": "a", "value": value, "text": "t", "kind": "original"} | changes)


def test_lengths_are_in_proportion() -> None:
    (x, wide), (y, narrow) = bars(bar_chart("t", [bar(4.0), bar(1.0)]))
    assert x == y
    assert wide / narrow == pytest.approx(4, rel=0.01)


def test_negative_bars_end_at_the_axis() -> None:
    svg = bar_chart("t", [bar(-1.0), bar(1.0)])
    (left, width), (right, _) = bars(svg)
    axis = float(next(parse(svg).iter("line")).get("x1", ""))
    assert left + width == pytest.approx(axis)
    assert right == axis


def test_everything_stays_inside() -> None:
    svg = bar_chart("t", [bar(1.0, reach=9.0), bar(-3.0)], Mark(20.0, "limit"))
    assert all(x >= 0 and x + w <= 960 for x, w in bars(svg))
    assert all(0 <= float(x) <= 960 for x in re.findall(r'x[12]?="([\d.]+)"', svg))


def test_zero_is_still_visible() -> None:
    assert bars(bar_chart("t", [bar(0.0)]))[0][1] >= 2


def test_names_cannot_break_out() -> None:
    svg = bar_chart("<b>", [bar(1.0, label='"><script>', text="<i>")], Mark(1.0, "&"))
    assert "<script" not in svg
    assert "<i>" not in svg
    parse(svg)


def test_long_names_are_shortened_and_kept_in_full_as_title() -> None:
    name = "encoder." * 20
    svg = bar_chart("t", [bar(1.0, label=name)])
    titles = [e.text for e in parse(svg).iter("title")]
    assert titles == [name]


def test_a_stack_fills_the_width_in_proportion() -> None:
    svg = stack_chart("t", [Stack("a", [("int8", 3), ("fp32", 1)], "4")])
    (x, wide), (y, narrow) = bars(svg)
    assert x + wide == pytest.approx(y, abs=0.2)
    assert wide / narrow == pytest.approx(3, rel=0.01)


def test_an_empty_stack_draws_nothing() -> None:
    assert bars(stack_chart("t", [Stack("a", [], "none")])) == []
