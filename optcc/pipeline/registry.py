"""Passes by name, found through the entry-point group `optcc.passes`, imported on use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from optcc.errors import ConfigError
from optcc.passkit.contract import Pass

__all__ = ["GROUP", "PassEntry", "PassRegistry", "discover_passes"]

GROUP = "optcc.passes"


@dataclass(frozen=True, slots=True)
class PassEntry:
    """One pass that some installed distribution offers.

    Attributes:
        name: Its name in plans and reports, `family.kebab-name`.
        distribution: Name of the distribution that offers it.
        load: Imports the pass and makes one with its default options.
    """

    name: str
    distribution: str
    load: Callable[[], Pass]


class PassRegistry:
    """Passes by name. Listing and checking names imports no pass.

    Args:
        entries: The passes on offer, in any order.

    Raises:
        ConfigError: Two distributions offer the same name.
    """

    def __init__(self, entries: Iterable[PassEntry]) -> None:
        self._entries: dict[str, PassEntry] = {}
        self._made: dict[str, Pass] = {}
        for entry in sorted(entries, key=lambda e: (e.name, e.distribution)):
            known = self._entries.setdefault(entry.name, entry)
            if known is not entry:
                raise _twice(known, entry)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[PassEntry]:
        return iter(self._entries.values())

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(self._entries)

    def joined(self, entries: Iterable[PassEntry]) -> PassRegistry:
        """Return a registry that has `entries` as well.

        Raises:
            ConfigError: A name is there already.
        """
        return PassRegistry([*self, *entries])

    def get(self, name: str) -> Pass:
        """Return the pass called `name`, imported at the first call.

        Raises:
            ConfigError: There is no such pass, it cannot be imported, or it calls itself
                something else.
        """
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Pass:
        if name not in self._entries:
            raise self._unknown(name)
        entry = self._entries[name]
        try:
            made = entry.load()
        except ImportError as error:
            what = f"pass {name!r} of {entry.distribution!r} cannot be imported: {error}"
            raise ConfigError(what, where=GROUP) from error
        if not isinstance(made, Pass):
            raise ConfigError(f"{name!r} of {entry.distribution!r} is no pass", where=GROUP)
        if made.name != name:
            raise ConfigError(f"pass {name!r} calls itself {made.name!r}", where=GROUP)
        return made

    def _unknown(self, name: str) -> ConfigError:
        near = get_close_matches(name, self._entries, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`optcc passes` lists what there is"
        return ConfigError(f"there is no pass {name!r}", hint=hint)


def _twice(first: PassEntry, second: PassEntry) -> ConfigError:
    owners = f"{first.distribution!r} and {second.distribution!r}"
    return ConfigError(
        f"pass {first.name!r} is offered by both {owners}",
        hint=f"uninstall one of {owners}",
        where=GROUP,
    )


def discover_passes() -> PassRegistry:
    """Read the entry points of all installed distributions; nothing is imported.

    Raises:
        ConfigError: Two distributions offer the same name.
    """
    found = {(e.name, _distribution(e), e.value): e for e in entry_points(group=GROUP)}
    return PassRegistry(
        PassEntry(point.name, _distribution(point), _maker(point)) for point in found.values()
    )


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"


def _maker(point: EntryPoint) -> Callable[[], Pass]:
    def make() -> Pass:
        try:
            made: Pass = point.load()()
        except AttributeError as error:
            raise ImportError(str(error)) from error
        return made

    return make
