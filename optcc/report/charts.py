"""Charts of the HTML report as inline SVG: no script, no font, no request leaves the page.

Colors are CSS classes of the page, so that a chart follows its light and dark scheme. Each chart
is one row per bar: label on the left, bar in the middle, figure on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = ["Bar", "Mark", "Stack", "bar_chart", "stack_chart"]

_WIDTH, _ROW, _BAR = 960, 34, 18
_LEFT, _RIGHT = 250, 210
_PLOT = _WIDTH - _LEFT - _RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One horizontal bar.

    Attributes:
        value: Length in the chart's unit; below 0 it goes to the left of the axis.
        text: The figure beside the bar.
        kind: CSS class: `original`, `optimized`, `loss`, `gain`.
        reach: End of the whisker, or None.
        gap: Whether a new group starts above this bar.
    """

    label: str
    value: float
    text: str
    kind: str
    reach: float | None = None
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at `value`, with a word on it."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Stack:
    """One bar of parts: (CSS class, count) from left to right."""

    label: str
    parts: Sequence[tuple[str, int]]
    text: str


def bar_chart(title: str, bars: Sequence[Bar], mark: Mark | None = None) -> Markup:
    """Draw `bars` on one axis that starts at zero; `title` is read to blind people."""
    scale = _Scale(bars, mark)
    top, pieces = (22.0 if mark else 4.0), []
    for bar in bars:
        top += 12 if bar.gap else 0
        pieces.append(_bar(bar, top, scale))
        top += _ROW
    axis = f'<line class="axis" x1="{scale.x(0)}" x2="{scale.x(0)}" y1="0" y2="{top:.0f}"/>'
    line = _mark(mark, scale.x(mark.value), top) if mark else ""
    return _svg(title, top + 4, axis + line + "".join(pieces))


def stack_chart(title: str, stacks: Sequence[Stack]) -> Markup:
    """Draw each stack over the full width: parts of a whole."""
    pieces = [_stack(stack, 4 + k * (_ROW + 6)) for k, stack in enumerate(stacks)]
    return _svg(title, len(stacks) * (_ROW + 6) + 8, "".join(pieces))


class _Scale:
    """Maps values to pixels so that every bar, whisker and mark fits."""

    def __init__(self, bars: Sequence[Bar], mark: Mark | None) -> None:
        values = [0.0, *(b.value for b in bars), *(b.reach for b in bars if b.reach is not None)]
        if mark:
            values.append(mark.value)
        self._low, high = min(values), max(values)
        self._span = (high - self._low) or 1.0

    def x(self, value: float) -> float:
        return round(_LEFT + (value - self._low) / self._span * _PLOT, 1)


def _bar(bar: Bar, top: float, scale: _Scale) -> str:
    start, end = sorted((scale.x(0), scale.x(bar.value)))
    y, middle = top + (_ROW - _BAR) / 2, top + _ROW / 2
    reach = scale.x(bar.reach) if bar.reach is not None else end
    whisker = (
        f'<path class="whisker" d="M{end} {middle}H{reach}M{reach} {middle - 5}v10"/>'
        if bar.reach is not None
        else ""
    )
    return (
        f"{_label(bar.label, middle)}"
        f'<rect class="{escape(bar.kind)}" x="{start}" y="{y}" width="{max(end - start, 2):.1f}" '
        f'height="{_BAR}" rx="3"/>{whisker}{_figure(bar.text, max(end, reach) + 10, middle)}'
    )


def _stack(stack: Stack, top: float) -> str:
    total = sum(count for _, count in stack.parts) or 1
    x, pieces = float(_LEFT), [_label(stack.label, top + _ROW / 2)]
    for kind, count in stack.parts:
        width = count / total * _PLOT
        pieces.append(
            f'<rect class="p-{escape(kind)}" x="{x:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{_ROW}"><title>{count} {escape(kind)}</title></rect>'
        )
        if width > 54:
            pieces.append(
                f'<text class="inside" x="{x + width / 2:.1f}" y="{top + _ROW / 2}">'
                f"{count} {escape(kind)}</text>"
            )
        x += width
    return "".join(pieces) + _figure(stack.text, _LEFT + _PLOT + 10, top + _ROW / 2)


def _label(text: str, middle: float) -> str:
    shown = text if len(text) <= 34 else f"{text[:16]}…{text[-17:]}"
    return (
        f'<text class="label" x="{_LEFT - 12}" y="{middle}">{escape(shown)}'
        f"<title>{escape(text)}</title></text>"
    )


def _figure(text: str, x: float, middle: float) -> str:
    return f'<text class="figure" x="{x:.1f}" y="{middle}">{escape(text)}</text>'


def _mark(mark: Mark, x: float, bottom: float) -> str:
    return (
        f'<line class="limit" x1="{x}" x2="{x}" y1="18" y2="{bottom:.0f}"/>'
        f'<text class="limit-text" x="{x}" y="9">{escape(mark.text)}</text>'
    )


def _svg(title: str, height: float, body: str) -> Markup:
    return Markup(  # noqa: S704 - every text in it went through escape()
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{body}</svg>"
    )
