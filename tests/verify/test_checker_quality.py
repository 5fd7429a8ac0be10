"""The checker is checked: planted faults must be caught, blamed rightly and rolled back.

A fixed slice of `benchmarks/verifier.py`: each wrong pass is tried on the first graphs of the slice
whose outputs it changes, once alone and, on the first of them, among the passes of the preset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from passes.fuse.conv_batchnorm import FuseConvBatchNorm
from tests.models.generated import generate
from tests.verify.quality import Subject, Trial
from tests.verify.wrong_passes import wrong_passes

SEEDS = (
    *(1, 2, 3, 4, 5, 6, 9, 11, 12, 14, 15, 17, 18, 19, 20, 21, 22, 23, 25, 28, 32, 36, 37, 43),
    *(44, 51, 52, 63, 68, 74, 80, 102, 115, 122),
)
TRIES = 2
"""On how many graphs of the slice each wrong pass is tried, if there are that many."""


@dataclass
class Slice:
    """What the slice gave.

    Attributes:
        mixed: Trials among the passes of the preset.
        alarms: What the correct passes were accused of.
    """

    alone: list[Trial] = field(default_factory=list)
    mixed: list[Trial] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)


@cache
def run_slice() -> Slice:
    """Run it once for all tests."""
    found, tries = Slice(), Counter[str]()
    for seed in SEEDS:
        subject = Subject(generate(seed))
        found.alarms += subject.alarms()
        for wrong in wrong_passes():
            if tries[wrong.name] >= TRIES:
                continue
            trial = subject.trial(wrong)
            found.alone += [trial] if trial.fired else []
            if trial.bad and tries[wrong.name] == 0:
                found.mixed.append(subject.trial(wrong, mixed=True))
            tries[wrong.name] += trial.bad
    return found


def wrongly_blamed(trials: list[Trial]) -> list[Trial]:
    return [t for t in trials if t.bad and not t.right_blame]


def test_no_planted_fault_gets_through():
    assert [t for t in run_slice().alone if t.missed] == []


def test_every_rewrite_that_spoils_the_model_is_named_and_no_other_pass():
    assert wrongly_blamed(run_slice().alone) == []


def test_among_right_passes_the_wrong_one_is_found():
    mixed = run_slice().mixed
    assert [t for t in mixed if t.missed] == []
    assert wrongly_blamed(mixed) == []


def test_right_passes_raise_no_alarm():
    assert run_slice().alarms == []


def test_every_wrong_pass_really_spoils_a_model_of_the_slice():
    spoilt = {t.name for t in run_slice().alone if t.bad}
    assert sorted({p.name for p in wrong_passes()} - spoilt) == []
    assert len(spoilt) >= 70
    assert any(not by_region for t in run_slice().alone for _, _, by_region in t.blamed)


TRUTH = Trial("graph", "wrong.one", ("a", "b"), ("a",), changed=True)


def test_the_measure_knows_a_miss_from_a_catch():
    assert TRUTH.missed
    assert not replace(TRUTH, blamed=(("wrong.one", "a", True),)).missed
    assert replace(TRUTH, blamed=(("wrong.one", "a", True),), differs=True).missed


@pytest.mark.parametrize(
    ("blamed", "right"),
    [
        ([("wrong.one", "a")], True),
        ([("wrong.one", "a"), ("wrong.one", "b")], True),
        ([("wrong.one", "b")], False),
        ([("wrong.one", "a"), ("wrong.one", "c")], False),
        ([("wrong.one", "a"), ("fuse.pad", "a")], False),
        ([("wrong.one", "")], False),
    ],
)
def test_the_measure_knows_whom_to_blame(blamed, right):
    trial = replace(TRUTH, blamed=tuple((name, node, True) for name, node in blamed))
    assert trial.right_blame is right


class Right(FuseConvBatchNorm):
    name = "right.conv-batchnorm"


def test_a_right_pass_is_neither_bad_nor_caught():
    trial = Subject(generate(2)).trial(Right())
    assert trial.fired
    assert not trial.bad
    assert not trial.caught
    assert not trial.missed
