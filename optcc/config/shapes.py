"""Shapes that an artifact is built for: `--shapes 'x:1x3x224x224..8x3x224x224'`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InputShapes", "ShapeProfile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShapes:
    """Least, typical and largest shape of one input."""

    name: str
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    @property
    def is_static(self) -> bool:
        """Whether one shape only."""
        return self.min == self.opt == self.max


@dataclass(frozen=True, slots=True)
class ShapeProfile:
    """All inputs, in signature order.

    Attributes:
        source: Where the sizes come from: `--shapes`, `samples`, `static`, `default`.
    """

    inputs: tuple[InputShapes, ...]
    source: str
