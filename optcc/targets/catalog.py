"""The hardware that an artifact can be built for, as data: one TOML file per target in `data/`."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from importlib import resources

from optcc.errors import ConfigError

__all__ = [
    "Target",
    "default_targets",
    "find_target",
    "load_targets",
    "target_from_table",
    "targets_of",
]

_KNOWN_PRECISIONS = frozenset({"fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int4", "fp4"})
_KEYS = frozenset({"title", "kind", "compute_capability", "precisions", "backends", "default_for"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One kind of hardware.

    Attributes:
        name: As in `--target`: `sm89`, `cpu`.
        title: For people: architecture and well-known products.
        kind: "gpu" or "cpu".
        compute_capability: (major, minor) of a GPU; None for a CPU.
        precisions: Formats that its matrix units compute in.
        backends: Names of the backends that can build for it.
        default_for: Names of the backends that build for it unless told otherwise.
    """

    name: str
    title: str
    kind: str
    compute_capability: tuple[int, int] | None
    precisions: tuple[str, ...]
    backends: tuple[str, ...]
    default_for: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in ("gpu", "cpu"):
            raise ConfigError(f"target {self.name}: kind is {self.kind!r}, it must be gpu or cpu")
        if (self.kind == "gpu") != (self.compute_capability is not None):
            raise ConfigError(f"target {self.name}: compute_capability is for GPUs, and only them")
        if unknown := sorted(set(self.precisions) - _KNOWN_PRECISIONS):
            raise ConfigError(f"target {self.name}: precision {unknown[0]!r} is not known")
        if extra := sorted(set(self.default_for) - set(self.backends)):
            raise ConfigError(f"target {self.name}: default_for names {extra[0]!r}, backends not")


def load_targets() -> dict[str, Target]:
    """Read the whole catalog, sorted: CPUs first, then GPUs by compute capability."""
    folder = resources.files("optcc.targets").joinpath("data")
    found = [
        target_from_table(entry.name.removesuffix(".toml"), tomllib.loads(entry.read_text("utf-8")))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    ]
    found.sort(key=lambda t: (t.compute_capability or (0, 0), t.name))
    return {target.name: target for target in found}


def target_from_table(name: str, table: dict[str, object]) -> Target:
    """Make a target from a TOML table.

    Raises:
        ConfigError: A key is missing, not known or of the wrong kind.
    """
    capability = table.get("compute_capability")
    required = _KEYS if capability is not None else _KEYS - {"compute_capability"}
    if wrong := sorted(set(table) ^ required):
        raise ConfigError(f"target {name}: key {wrong[0]!r} is missing or not known")
    return Target(
        name=name,
        title=str(table["title"]),
        kind=str(table["kind"]),
        compute_capability=_capability(name, capability),
        precisions=_names(name, "precisions", table),
        backends=_names(name, "backends", table),
        default_for=_names(name, "default_for", table),
    )


def _capability(name: str, value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value):
        return value[0], value[1]
    raise ConfigError(f"target {name}: compute_capability is {value!r}, it must be [major, minor]")


def _names(name: str, key: str, table: dict[str, object]) -> tuple[str, ...]:
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"target {name}: {key} is {value!r}, it must be a list of names")
    return tuple(value)


def find_target(name: str) -> Target:
    """Look one up.

    Raises:
        ConfigError: There is no such target.
    """
    targets = load_targets()
    if name in targets:
        return targets[name]
    near = difflib.get_close_matches(name.lower().replace("_", ""), targets, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(targets)}"
    raise ConfigError(f"target {name!r} is not known", hint=hint)


def targets_of(backend: str) -> tuple[str, ...]:
    """Names of the targets that `backend` can build for."""
    return tuple(t.name for t in load_targets().values() if backend in t.backends)


def default_targets(backend: str) -> tuple[str, ...]:
    """Names of the targets that `backend` builds for unless told otherwise."""
    return tuple(t.name for t in load_targets().values() if backend in t.default_for)
