"""Finds backends: the entry points of group `optcc.backends`, made when they are asked for."""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points

from optcc.backends.contract import Backend
from optcc.errors import ConfigError

__all__ = ["backend_names", "default_backends", "load_backend"]

_GROUP = "optcc.backends"


def backend_names() -> tuple[str, ...]:
    """Return the names of all installed backends, sorted; imports none of them.

    Raises:
        ConfigError: Two distributions offer the same name.
    """
    return tuple(sorted(_entries()))


def load_backend(name: str) -> Backend:
    """Make the backend `name`.

    Raises:
        ConfigError: There is none of that name, or it cannot be imported.
    """
    entries = _entries()
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(entries))}"
        raise ConfigError(f"backend {name!r} is not known", hint=hint)
    try:
        backend = entries[name].load()()
    except ImportError as error:
        raise ConfigError(f"backend {name!r} cannot be imported: {error}") from error
    if not isinstance(backend, Backend):
        raise ConfigError(f"entry point {entries[name].value!r} is not a backend")
    return backend


def default_backends() -> tuple[str, ...]:
    """Names used when the user names none: ONNX Runtime, and TensorRT-RTX where it is installed."""
    return tuple(
        name
        for name in ("onnxruntime", "tensorrt_rtx")
        if name in _entries() and load_backend(name).availability().ok
    )


def _entries() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=_GROUP):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            owners = sorted(e.dist.name if e.dist else "?" for e in (other, entry))
            raise ConfigError(
                f"backend {entry.name!r} is offered twice, by {owners[0]} and {owners[1]}",
                hint=f"uninstall one: pip uninstall {owners[0]}",
            )
        found[entry.name] = entry
    return found
