"""What is known of a run of the pipeline, from its events or from the records in OUT."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from optcc.artifacts.manifest import read_manifest
from optcc.config.request import Precision
from optcc.driver.reports import load_report
from optcc.driver.work import CPU_MODEL, MODEL
from optcc.errors import ConfigError
from optcc.graph.io import read_model
from optcc.graph.walk import all_values, graphs_of
from optcc.report.explanation import Change, HeavyNode, LeftAlone, PassExplanation

__all__ = ["Evidence", "EvidenceMaker", "read_evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the stages did.

    Attributes:
        source: What it is about, for messages.
        timeline: All rewrites, in the order they happened.
        known: Names that one may ask for: of nodes before, between and after.
        nodes: Names of the nodes of the final graph.
        makers: Per name of a value the node that makes it.
        complete: Whether the final graph is known.
    """

    source: str
    precision: str
    stages: tuple[str, ...]
    passes: list[PassExplanation]
    timeline: list[Change]
    heavy: list[HeavyNode]
    known: frozenset[str]
    nodes: frozenset[str]
    makers: Mapping[str, str]
    complete: bool


@dataclass(slots=True)
class EvidenceMaker:
    """Collects records, then joins them.

    Attributes:
        rejects: Per pass the near misses of its last round in its last stage.
        values: Names of values of the final graph: some passes are about values.
        complete: Whether the final graph was seen.
    """

    stages: dict[str, None] = field(default_factory=dict)
    rewrites: dict[str, list[Change]] = field(default_factory=dict)
    rejects: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    timeline: list[Change] = field(default_factory=list)
    heavy: list[HeavyNode] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    makers: dict[str, str] = field(default_factory=dict)
    complete: bool = False

    def event(self, kind: str, facts: Mapping[str, object]) -> None:
        """Take one event of the trace."""
        if kind == "pass":
            self.stages[str(facts["stage"])] = None
            self.rewrites.setdefault(str(facts["name"]), [])
        elif kind == "rewrite":
            self._rewrite(facts)

    def _rewrite(self, facts: Mapping[str, object]) -> None:
        one = Change(
            node=str(facts["node"]),
            what=str(facts["what"]),
            merged=_texts(facts.get("merged")),
            into=_texts(facts.get("into")),
        )
        self.rewrites.setdefault(str(facts["name"]), []).append(one)
        self.timeline.append(one)
        self.known.update({one.node, *one.merged, *one.into})

    def left_alone(self, name: str, rejects: Iterable[tuple[str, str]]) -> None:
        """Take the near misses of a pass; a later stage says what stands."""
        self.rejects[name] = list(rejects)

    def graph(self, model: ir.Model, *, final: bool) -> None:
        """Take the names of the graph before the first stage, or after the last one."""
        for graph in graphs_of(model):
            for node in graph:
                self.known.add(node.name or "")
                self.makers |= {v.name: node.name or "" for v in node.outputs if v.name}
                if final:
                    self.nodes.add(node.name or "")
            if final:
                self.values.update(v.name or "" for v in all_values(graph))
        self.complete |= final

    def joined(self, source: str, precision: str) -> Evidence:
        """Put everything together."""
        names = dict.fromkeys([*self.rewrites, *self.rejects])
        passes = [
            PassExplanation(name=n, rewrites=self.rewrites.get(n, []), left_alone=self._left(n))
            for n in names
        ]
        rejected = {m.node for p in passes for m in p.left_alone}
        known = self.known | rejected | {h.node for h in self.heavy}
        return Evidence(
            source=source,
            precision=precision,
            stages=tuple(self.stages),
            passes=passes,
            timeline=self.timeline,
            heavy=self.heavy,
            known=frozenset(known - {""}),
            nodes=frozenset(self.nodes),
            makers=self.makers,
            complete=self.complete,
        )

    def _left(self, name: str) -> list[LeftAlone]:
        there = self.nodes | self.values | {""}
        unique = dict.fromkeys(self.rejects.get(name, ()))
        kept = [(n, r) for n, r in unique if n in there or not self.complete]
        return [LeftAlone(node=n or "the model", reason=r) for n, r in kept]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, Sequence) else ()


def read_evidence(folder: Path, precision: Precision | None) -> Evidence:
    """Read trace.jsonl, report.json and the graphs of OUT or of OUT.failed.

    Raises:
        ConfigError: They are not there or cannot be read, or `precision` is another one.
    """
    report, made = load_report(folder), EvidenceMaker()
    for kind, facts in _events(folder / "trace.jsonl"):
        try:
            made.event(kind, facts)
        except KeyError as error:
            raise _unreadable(folder / "trace.jsonl", f"an event lacks {error}") from error
    for row in report.passes:
        made.left_alone(row.name, [(r.get("node", ""), r.get("reason", "")) for r in row.rejects])
    for name in (MODEL, CPU_MODEL):
        if (folder / name).is_file():
            made.graph(read_model(folder / name), final=True)
    own = _precision_of(folder)
    if precision is not None and own not in ("", precision.value):
        raise ConfigError(f"{folder.name} was compiled with --precision {own}, not {precision}")
    if own != Precision.FP32.value:
        made.heavy = [
            HeavyNode(node=n.node, op_type=n.op_type, wanted=n.wanted, reason=n.reason)
            for n in report.precision
        ]
    return made.joined(folder.resolve().name, own or "precision")


def _precision_of(folder: Path) -> str:
    manifest = read_manifest(folder) or {}
    options = manifest.get("options")
    return str(options.get("precision", "")) if isinstance(options, dict) else ""


def _events(path: Path) -> list[tuple[str, dict[str, object]]]:
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [(row.pop("event"), row) for row in rows]
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path.parent} holds no {path.name}", hint="give the output folder of `optcc compile`"
        ) from error
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path.name} cannot be read: {why}", where=str(path))
