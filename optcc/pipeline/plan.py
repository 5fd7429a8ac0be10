"""A pipeline as a value: stages of pass names, read from TOML and validated before anything runs.

```toml
extends = "fp32"          # a shipped preset whose stages come first
without = ["fuse.pad"]    # passes of those stages that are left out

[[stage]]
name = "simplify"
passes = ["fold.constants", "fuse.conv-batchnorm"]
repeat_until_stable = 8

[[stage]]
name = "lower-tensorrt"
passes = ["lower.tensorrt"]
assumes = ["ranges"]      # the driver provides these facts between stages
branch = true             # works on a copy; what it gives or breaks ends with it
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import files

from optcc.errors import ConfigError
from optcc.passkit.contract import Fact, Pass
from optcc.pipeline.registry import PassRegistry

__all__ = ["Plan", "Stage", "load_plan", "parse_plan", "preset_names", "validate_plan"]

_STAGE_KEYS = ("name", "passes", "repeat_until_stable", "assumes", "branch", "open")
_MOST_REPEATS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Passes that run one after the other.

    Attributes:
        name: Unique in the plan.
        passes: Entry-point names, in the order they run.
        repeat_until_stable: Most rounds; a round that changes nothing is the last one.
        assumes: Facts that the driver establishes before the stage (ranges by calibration).
        branch: The stage works on a copy of the model; later stages start from the trunk.
        open: The stage whose passes a user may choose; passes that are added join it.
    """

    name: str
    passes: tuple[str, ...]
    repeat_until_stable: int = 1
    assumes: frozenset[Fact] = frozenset()
    branch: bool = False
    open: bool = False

    def __post_init__(self) -> None:
        if not self.passes:
            raise ConfigError(f"stage {self.name!r} has no passes", where="stage.passes")
        if not 1 <= self.repeat_until_stable <= _MOST_REPEATS:
            what = f"repeat_until_stable is {self.repeat_until_stable}"
            raise ConfigError(f"{what}, it must be 1 to {_MOST_REPEATS}", where=self.name)


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages in order."""

    name: str
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """Return the stage called `name`.

        Raises:
            ConfigError: The plan has no such stage.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise ConfigError(f"plan {self.name!r} has no stage {name!r}")

    def pass_names(self) -> tuple[str, ...]:
        """Return the names of all passes, each once, in order."""
        return tuple(dict.fromkeys(p for s in self.stages for p in s.passes))


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that ship with optcc, sorted."""
    folder = files("optcc.config").joinpath("presets")
    names = (f.name for f in folder.iterdir())
    return tuple(sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml")))


def load_plan(preset: str) -> Plan:
    """Read a shipped preset.

    Raises:
        ConfigError: There is no such preset, or it is malformed.
    """
    if preset not in preset_names():
        known = ", ".join(preset_names())
        raise ConfigError(f"there is no preset {preset!r}", hint=f"choose one of {known}")
    file = files("optcc.config").joinpath("presets", f"{preset}.toml")
    return parse_plan(file.read_text("utf-8"), name=preset)


def parse_plan(text: str, *, name: str) -> Plan:
    """Read a plan from TOML.

    Raises:
        ConfigError: It is no TOML, or has unknown keys, wrong types or repeated stage names.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"plan {name!r} is no TOML: {error}", where=name) from error
    _only_known(table, ("extends", "without", "stage"), name)
    rows = table.get("stage", [])
    if not isinstance(rows, list) or not (rows or "extends" in table):
        raise ConfigError(f"plan {name!r} has no [[stage]]", where=name)
    stages = (*_inherited(table, name), *(_stage(row, name) for row in rows))
    names = [s.name for s in stages]
    for stage_name in names:
        if names.count(stage_name) > 1:
            raise ConfigError(f"stage {stage_name!r} appears twice", where=name)
    return Plan(name, stages)


def _inherited(table: Mapping[str, object], where: str) -> tuple[Stage, ...]:
    preset, without = table.get("extends"), _texts(table, "without", where)
    if preset is None:
        return ()
    if not isinstance(preset, str):
        raise ConfigError(f"extends is {preset!r}, it must be the name of a preset", where=where)
    if preset == where:
        raise ConfigError(f"plan {where!r} extends itself", where=where)
    plan = load_plan(preset)
    for name in without:
        if name not in plan.pass_names():
            raise ConfigError(f"{preset!r} has no pass {name!r} to leave out", where=where)
    return tuple(
        replace(s, passes=tuple(p for p in s.passes if p not in without)) for s in plan.stages
    )


def _stage(row: Mapping[str, object], where: str) -> Stage:
    _only_known(row, _STAGE_KEYS, where)
    repeats = row.get("repeat_until_stable", 1)
    stage_name = row.get("name")
    if not isinstance(stage_name, str) or not stage_name:
        raise ConfigError(f"a stage has the name {stage_name!r}, it must be text", where=where)
    if not isinstance(repeats, int) or isinstance(repeats, bool):
        raise ConfigError(f"repeat_until_stable is {repeats!r}, not a number", where=stage_name)
    return Stage(
        name=stage_name,
        passes=_texts(row, "passes", stage_name),
        repeat_until_stable=repeats,
        assumes=frozenset(_fact(t, stage_name) for t in _texts(row, "assumes", stage_name)),
        branch=_switch(row, "branch", stage_name),
        open=_switch(row, "open", stage_name),
    )


def _switch(row: Mapping[str, object], key: str, where: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}, it must be true or false", where=where)
    return value


def _texts(row: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    items = row.get(key, [])
    if not isinstance(items, list) or not all(isinstance(i, str) for i in items):
        raise ConfigError(f"{key} is {items!r}, it must be a list of texts", where=where)
    return tuple(items)


def _fact(text: str, where: str) -> Fact:
    try:
        return Fact(text)
    except ValueError as error:
        known = ", ".join(f.value for f in Fact)
        hint = f"choose from {known}"
        raise ConfigError(f"there is no fact {text!r}", hint=hint, where=where) from error


def _only_known(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"unknown key {key!r}", hint=hint, where=where)


def validate_plan(
    plan: Plan, registry: PassRegistry, initial: frozenset[Fact] = frozenset()
) -> None:
    """Check that every pass exists and finds the facts that it needs when its turn comes.

    A stage that repeats must also find them in its second round.

    Raises:
        ConfigError: A pass is unknown, or comes too early; nothing is ever reordered.
    """
    facts = set(initial)
    for stage in plan.stages:
        held = facts | stage.assumes
        rounds = 2 if stage.repeat_until_stable > 1 else 1
        for name in stage.passes * rounds:
            held = _after(registry.get(name), held, stage)
        if not stage.branch:
            facts = held


def _after(one: Pass, facts: set[Fact], stage: Stage) -> set[Fact]:
    missing = sorted(f.value for f in one.needs - facts)
    if missing:
        raise ConfigError(
            f"pass {one.name!r} needs {', '.join(missing)}, which nothing before it gives",
            hint=f"put a pass that gives it before {one.name!r}, or let the stage assume it",
            where=f"stage {stage.name}",
        )
    return (facts - one.breaks) | one.gives
