"""Apply a user's selection of passes to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from optcc.config.selection import PassSelection
from optcc.errors import ConfigError
from optcc.pipeline.plan import Plan, Stage
from optcc.pipeline.registry import PassRegistry

__all__ = ["SURGEON_STAGE", "select"]

SURGEON_STAGE = "surgeon"

_AFTER_SURGERY = ("canonicalize.names", "canonicalize.constants", "canonicalize.shapes")
"""What gives back the facts that a surgeon breaks."""


def select(plan: Plan, selection: PassSelection, registry: PassRegistry) -> Plan:
    """Return the plan that `selection` makes of `plan`.

    Args:
        plan: Of a preset; the stage that users choose from is marked `open`.
        selection: What the user asked for.
        registry: Where added passes must be, those of the surgeons included.

    Raises:
        ConfigError: A name or glob fits no pass, or a stage that makes an artifact would be empty.
    """
    stages = [_opened(s, selection, registry) if s.open else s for s in plan.stages]
    stages = list(_with_surgeons(stages, selection.surgeons))
    fixed = [p for s in stages if s.branch for p in s.passes]
    free = [p for s in stages if not s.branch for p in s.passes]
    for pattern in selection.skip:
        _refuse_unknown(pattern, free, fixed)
    kept = [s if s.branch else _without(s, selection.skip) for s in stages]
    return replace(plan, stages=tuple(s for s in kept if s is not None))


def _opened(stage: Stage, selection: PassSelection, registry: PassRegistry) -> Stage:
    names = stage.passes
    if selection.run:
        for name in selection.run:
            registry.get(name.removeprefix("+"))
        added = tuple(dict.fromkeys(n[1:] for n in selection.run if n.startswith("+")))
        names = (*(n for n in names if n not in added), *added) if added else selection.run
    for pattern in selection.only:
        _refuse_unknown(pattern, names, ())
    if selection.only:
        names = tuple(n for n in names if _fits(n, selection.only))
    return replace(stage, passes=names)


def _with_surgeons(stages: Iterable[Stage], surgeons: Sequence[str]) -> Iterable[Stage]:
    for stage in stages:
        if stage.open and surgeons:
            names = tuple(f"surgeon.{text.rpartition(':')[2]}" for text in surgeons)
            yield Stage(name=SURGEON_STAGE, passes=(*names, *_AFTER_SURGERY))
        yield stage


def _without(stage: Stage, patterns: Sequence[str]) -> Stage | None:
    kept = tuple(n for n in stage.passes if not _fits(n, patterns))
    return replace(stage, passes=kept) if kept else None


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_unknown(pattern: str, names: Sequence[str], fixed: Sequence[str]) -> None:
    if any(fnmatchcase(name, pattern) for name in names):
        return
    if any(fnmatchcase(name, pattern) for name in fixed):
        raise ConfigError(
            f"pass {pattern!r} cannot be left out: it writes an artifact",
            hint="choose another --precision instead",
        )
    near = get_close_matches(pattern, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`optcc passes --plan MODEL` lists them"
    raise ConfigError(f"no pass of the plan is called {pattern!r}", hint=hint)
