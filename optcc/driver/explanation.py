"""Why nodes were changed or left alone: of a model by running its stages, of OUT by reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from optcc.config.request import Precision
from optcc.config.selection import PassSelection
from optcc.driver.evidence import Evidence, read_evidence
from optcc.driver.rehearsal import rehearse
from optcc.errors import ConfigError
from optcc.pipeline.registry import discover_passes
from optcc.progress import Progress, Silent
from optcc.report.explanation import Explanation, HeavyNode, PassExplanation

__all__ = ["explain"]

_HEAVY = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN"})


def explain(
    source: Path,
    *,
    node: str | None = None,
    passes: str | None = None,
    precision: Precision | None = None,
    selection: PassSelection | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Say which rewrites were done, and what was left alone for which reason.

    Args:
        source: A model, whose stages up to calibration are run in memory and verified as in a
            compile; or an output folder, whose records are read.
        node: Only what concerns this node or the nodes that were merged into it.
        passes: Only these passes: a name or a glob.
        precision: Preset of a model, fp32 unless said; of a folder it is known.
        selection: Changes to the preset, for a model.
        progress: Receives the stages.

    Raises:
        ConfigError: There is no such source, node or pass.
        UnsupportedModelError: The model is malformed or not supported.
        VerificationError: A pass broke its promise.
    """
    if source.is_dir():
        evidence = read_evidence(source, precision)
    else:
        preset, changes = precision or Precision.FP32, selection or PassSelection()
        evidence = rehearse(source, preset, changes, progress or Silent())
    wanted = _chosen(passes, evidence)
    if node is not None and node not in evidence.known:
        raise _no_node(node, evidence)
    concerns = _Concern(node, evidence)
    found = [concerns.of(p) for p in evidence.passes if p.name in wanted]
    kept = [p for p in found if p.rewrites or p.left_alone or p.name == passes]
    heavy = [] if passes is not None else concerns.heavy()
    notes = [] if node is None else concerns.notes(kept, heavy)
    return Explanation(
        source=source.resolve().name,
        precision=evidence.precision,
        node=node or "",
        stages=list(evidence.stages),
        passes=kept,
        heavy=heavy,
        notes=notes or _nothing(kept, heavy, passes),
    )


class _Concern:
    """Picks what concerns one node; everything when there is none."""

    def __init__(self, node: str | None, evidence: Evidence) -> None:
        self.node, self.evidence = node, evidence
        self.names = frozenset() if node is None else frozenset({node, *_merged(node, evidence)})

    def of(self, one: PassExplanation) -> PassExplanation:
        if self.node is None:
            return one
        rewrites = [
            c for c in one.rewrites if c.node in self.names or not self.names.isdisjoint(c.merged)
        ]
        left = [m for m in one.left_alone if m.node in self.names]
        return PassExplanation(name=one.name, rewrites=rewrites, left_alone=left)

    def heavy(self) -> list[HeavyNode]:
        rows = [h for h in self.evidence.heavy if h.op_type in _HEAVY]
        return rows if self.node is None else [h for h in rows if h.node in self.names]

    def notes(self, kept: Sequence[PassExplanation], heavy: Sequence[HeavyNode]) -> list[str]:
        assert self.node is not None
        notes = []
        if any(p.rewrites or p.left_alone for p in kept):
            home = _home(self.node, self.evidence)
            if home and home != self.node:
                notes.append(f"{self.node!r} is part of {home!r} now")
            elif not home and self.evidence.complete:
                notes.append(f"{self.node!r} is not in the optimized graph any more")
        elif not heavy:
            notes.append(f"no pass changed {self.node!r} or came near to it")
        return notes


def _merged(node: str, evidence: Evidence) -> set[str]:
    """Return the nodes that are part of `node`, directly or by way of others."""
    names = {node}
    for one in reversed(evidence.timeline):
        if not names.isdisjoint(one.into):
            names.update(set(one.merged) - set(one.into))
    return names


def _home(node: str, evidence: Evidence) -> str:
    """Return the node of the final graph that `node` lives in; empty when there is none."""
    name = node
    for one in evidence.timeline:
        if name in one.merged and name not in one.into and one.into:
            name = one.into[0]
    return name if name in evidence.nodes else ""


def _chosen(passes: str | None, evidence: Evidence) -> frozenset[str]:
    """Return the names of the passes that are asked for.

    Raises:
        ConfigError: None is called so.
    """
    ran = [p.name for p in evidence.passes]
    if passes is None:
        return frozenset(ran)
    found = frozenset(n for n in ran if fnmatchcase(n, passes))
    if found:
        return found
    installed = discover_passes().names()
    if any(fnmatchcase(n, passes) for n in installed):
        raise ConfigError(
            f"pass {passes!r} is in none of the stages {', '.join(evidence.stages)}",
            hint="`optcc explain` runs the stages that need no samples; give an output folder for "
            "the others, or another --precision",
        )
    near = get_close_matches(passes, installed, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`optcc passes` lists what there is"
    raise ConfigError(f"there is no pass {passes!r}", hint=hint)


def _no_node(node: str, evidence: Evidence) -> ConfigError:
    maker = evidence.makers.get(node)
    if maker is not None:
        return ConfigError(
            f"there is no node {node!r}, it is a value", hint=f"its node is {maker!r}"
        )
    near = get_close_matches(node, sorted(evidence.known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else None
    return ConfigError(f"there is no node {node!r} in {evidence.source}", hint=hint)


def _nothing(
    kept: Sequence[PassExplanation], heavy: Iterable[HeavyNode], passes: str | None
) -> list[str]:
    if any(p.rewrites or p.left_alone for p in kept) or list(heavy):
        return []
    if passes is None:
        return ["no pass found anything to change"]
    return [f"{passes!r} found nothing to change"]
