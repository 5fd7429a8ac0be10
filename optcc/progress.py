"""How long work tells a person that it goes on; the driver calls it, the CLI draws it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "Silent"]


class Progress(Protocol):
    """Receives what the driver does."""

    def stage(self, name: str) -> None:
        """A stage begins: one short phrase in the words of the field."""
        ...

    def step(self, done: int, total: int | None = None) -> None:
        """Work inside the stage advanced; `total` None means that the end is not known."""
        ...

    def warn(self, text: str) -> None:
        """Something that the person should read; one line."""
        ...


class Silent:
    """A `Progress` that drops everything."""

    def stage(self, name: str) -> None:
        """Drop it."""

    def step(self, done: int, total: int | None = None) -> None:
        """Drop it."""

    def warn(self, text: str) -> None:
        """Drop it."""
