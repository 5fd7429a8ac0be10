"""Measure the checker: what share of wrong rewrites it catches, and how often it cries wolf.

usage: python benchmarks/verifier.py [--graphs 200] [--first 0] [--seeds 1] [--only NAME ...]
                                     [--jobs 2] [--json FILE]

Every wrong pass of `tests/verify/wrong_passes` runs on every generated graph, at three nodes at
most, under the real runner with --keep-going. What it really spoils is decided by running each
rewrite alone and unchecked and comparing the outputs on 24 random inputs. Every graph also goes
through the fp32 preset, where nothing may be rolled back. Columns, in graphs:

    fired      the pass changed something when nobody checked
    changed    ... and the outputs of the model with it; the next four are of these
    region     caught by the check of a region
    later      caught by the lint or by the check of the whole model
    blame      every rewrite that changes the outputs was named, and nothing that did not happen
    restored   at the end the outputs are those of the original
    missed     not caught, not restored, or given up with an error
    unseen     a rewrite was rolled back that the outputs of this model do not show
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.models.generated import generate
from tests.verify.quality import Subject, Trial
from tests.verify.wrong_passes import wrong_passes

COLUMNS = ("fired", "changed", "region", "later", "blame", "restored", "missed", "unseen")


@dataclass
class Row:
    """Counts of one wrong pass, in graphs."""

    fired: int = 0
    changed: int = 0
    region: int = 0
    later: int = 0
    blame: int = 0
    restored: int = 0
    missed: int = 0
    unseen: int = 0

    def add(self, trial: Trial) -> None:
        """Count one graph."""
        self.fired += 1
        self.missed += trial.missed
        if not trial.bad:
            self.unseen += trial.caught
            return
        self.changed += 1
        regions = [by_region for _, _, by_region in trial.blamed]
        self.region += any(regions)
        self.later += bool(regions) and not any(regions)
        self.blame += trial.right_blame
        self.restored += not trial.differs and not trial.error


@dataclass
class Tally:
    """Everything that was counted.

    Attributes:
        alarms: What the correct passes were accused of.
        faults: Trials that failed, in words.
    """

    graphs: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def total(self) -> Row:
        """Add up all rows."""
        sums = {f.name: sum(getattr(r, f.name) for r in self.rows.values()) for f in fields(Row)}
        return Row(**sums)


def main() -> int:
    options = _parser().parse_args()
    began = time.perf_counter()
    tasks = [
        (graph, seed, tuple(options.only))
        for graph in range(options.first, options.first + options.graphs)
        for seed in range(options.seeds)
    ]
    tally = Tally(rows={p.name: Row() for p in wrong_passes() if _wanted(p.name, options.only)})
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        _collect(tally, pool.map(_one_graph, tasks))
    _show(tally, time.perf_counter() - began)
    if options.json:
        record = asdict(tally) | {"total": asdict(tally.total())}
        options.json.write_text(json.dumps(record, indent=1), "utf-8")
    return 1 if tally.faults or tally.alarms else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure how good the checker is.")
    parser.add_argument("--graphs", type=int, default=200, help="how many generated graphs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the checker, each graph")
    parser.add_argument("--only", nargs="*", default=[], help="wrong passes, without 'wrong.'")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="write all counts there")
    return parser


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or name.removeprefix("wrong.") in only


def _one_graph(task: tuple[int, int, tuple[str, ...]]) -> tuple[list[Trial], list[str]]:
    graph, seed, only = task
    passes = wrong_passes()
    subject = Subject(generate(graph), seed)
    trials = [subject.trial(p) for p in passes if _wanted(p.name, only)]
    return [t for t in trials if t.fired], subject.alarms()


def _collect(tally: Tally, results: Iterable[tuple[list[Trial], list[str]]]) -> None:
    for trials, alarms in results:
        tally.graphs += 1
        tally.alarms += alarms
        for trial in trials:
            tally.rows[trial.name].add(trial)
            if trial.missed or (trial.bad and not trial.right_blame):
                tally.faults.append(str(trial))
        if tally.graphs % 20 == 0:
            print(f"{tally.graphs} graphs, {tally.total().missed} missed", file=sys.stderr)


def _show(tally: Tally, seconds: float) -> None:
    print(f"{'wrong pass':34}" + "".join(f"{c:>9}" for c in COLUMNS))
    for name, row in tally.rows.items():
        print(f"{name.removeprefix('wrong.'):34}" + _numbers(row))
    print(f"{'total':34}" + _numbers(tally.total()))
    for text in (*tally.faults, *tally.alarms):
        print(text)
    print(f"{tally.graphs} graphs, {len(tally.rows)} wrong passes, {seconds:.0f} s")
    print(f"false alarms of the fp32 preset: {len(tally.alarms)}")


def _numbers(row: Row) -> str:
    return "".join(f"{getattr(row, c):9}" for c in COLUMNS)


if __name__ == "__main__":
    raise SystemExit(main())
