"""What callers hand over instead of what the network was trained on. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from optcc.errors import ConfigError

__all__ = ["Preprocessing", "parse_numbers"]

DTYPES = ("uint8", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """y = (x * scale - mean) / std, for the one image or feature input of a model.

    Attributes:
        dtype: Of what callers hand over: "uint8", "float32", or None for that of the model.
        mean: One number, or one per channel.
        std: One number, or one per channel; none is 0.
        scale: Multiplies first: 1/255 turns 8-bit pixels into 0 to 1.
        swap: The channels come in reverse order, BGR for RGB.
    """

    dtype: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 1.0
    swap: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in (None, *DTYPES):
            known = " or ".join(DTYPES)
            raise ConfigError(f"--input-dtype is {self.dtype!r}, it must be {known}")
        if any(s <= 0 for s in self.std):
            raise ConfigError("--std holds a number that is not above 0")
        if self.scale <= 0:
            raise ConfigError("--input-scale must be above 0")
        if len({len(t) for t in (self.mean, self.std)} - {0, 1}) > 1:
            what = f"--mean has {len(self.mean)} numbers and --std {len(self.std)}"
            raise ConfigError(what, hint="give one number, or one per channel, for both")

    def __bool__(self) -> bool:
        return self != Preprocessing()

    @property
    def channels(self) -> int:
        """How many channels the numbers tell; 1 when they hold for all."""
        return max(len(self.mean), len(self.std), 1)


def parse_numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Read `0.485,0.456,0.406` or `1/255`.

    Raises:
        ConfigError: A part is no finite number.
    """
    return tuple(_number(option, part) for part in text.split(",")) if text else ()


def _number(option: str, text: str) -> float:
    above, slash, below = text.partition("/")
    try:
        number = float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{option} holds {text.strip()!r}, which is no number")
    return number
