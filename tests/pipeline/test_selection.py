from __future__ import annotations

from types import SimpleNamespace

import pytest

from optcc.config.selection import PassSelection
from optcc.errors import ConfigError
from optcc.passkit.contract import Exactness, PassResult
from optcc.pipeline.plan import load_plan, parse_plan
from optcc.pipeline.registry import PassEntry, PassRegistry, discover_passes
from optcc.pipeline.selection import SURGEON_STAGE, select

TEXT = """
[[stage]]
name = "first"
passes = ["z.first", "z.other"]

[[stage]]
name = "simplify"
passes = ["a.one", "a.two", "b.three"]
open = true

[[stage]]
name = "lower"
passes = ["lower.all"]
branch = true
"""
NAMES = ("z.first", "z.other", "a.one", "a.two", "b.three", "lower.all", "acme.extra")


def registry() -> PassRegistry:
    def entry(name: str) -> PassEntry:
        made = SimpleNamespace(
            name=name,
            exactness=Exactness.BITWISE,
            needs=frozenset(),
            gives=frozenset(),
            breaks=frozenset(),
            run=lambda model, ctx: PassResult(),
        )
        return PassEntry(name, "test", lambda: made)

    return PassRegistry(map(entry, NAMES))


def chosen(**selection: tuple[str, ...]):
    plan = select(parse_plan(TEXT, name="p"), PassSelection(**selection), registry())
    return {stage.name: stage.passes for stage in plan.stages}


def test_nothing_asked_leaves_the_preset():
    plan = parse_plan(TEXT, name="p")
    assert select(plan, PassSelection(), registry()) == plan


def test_a_list_replaces_the_open_stage_in_its_own_order():
    assert chosen(run=("b.three", "a.one"))["simplify"] == ("b.three", "a.one")


def test_a_plus_adds_at_the_end_and_moves_what_is_there():
    assert chosen(run=("+acme.extra",))["simplify"] == ("a.one", "a.two", "b.three", "acme.extra")
    assert chosen(run=("+a.one",))["simplify"] == ("a.two", "b.three", "a.one")


def test_only_keeps_the_order_of_the_preset_and_touches_no_other_stage():
    found = chosen(only=("b.*", "a.two"))
    assert found["simplify"] == ("a.two", "b.three")
    assert found["first"] == ("z.first", "z.other")


def test_skip_reaches_every_stage_and_may_empty_one():
    assert chosen(skip=("z.first", "a.*")) == {
        "first": ("z.other",),
        "simplify": ("b.three",),
        "lower": ("lower.all",),
    }
    assert "first" not in chosen(skip=("z.*",))


def test_only_and_skip_combine_and_an_added_pass_can_be_the_only_one():
    assert chosen(only=("a.*",), skip=("a.one",))["simplify"] == ("a.two",)
    assert chosen(run=("+acme.extra",), only=("acme.*",))["simplify"] == ("acme.extra",)


def test_surgeons_get_a_stage_before_the_open_one():
    plan = select(parse_plan(TEXT, name="p"), PassSelection(surgeons=("dir/s.py:cut",)), registry())
    assert [s.name for s in plan.stages] == ["first", SURGEON_STAGE, "simplify", "lower"]
    assert plan.stage(SURGEON_STAGE).passes[0] == "surgeon.cut"


@pytest.mark.parametrize(
    ("selection", "words", "hint"),
    [
        ({"run": ("+acme.extr",)}, "no pass 'acme.extr'", "'acme.extra'"),
        ({"only": ("c.*",)}, "no pass of the plan is called 'c.*'", "--plan"),
        ({"only": ("z.first",)}, "no pass of the plan is called 'z.first'", "--plan"),
        ({"skip": ("a.tow",)}, "no pass of the plan is called 'a.tow'", "'a.two'"),
        ({"skip": ("lower.all",)}, "'lower.all' cannot be left out", "--precision"),
    ],
)
def test_what_fits_no_pass_is_refused(selection, words, hint):
    with pytest.raises(ConfigError) as caught:
        chosen(**selection)
    assert words in caught.value.what
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("preset", ["fp32", "fp16", "int8"])
def test_each_preset_has_one_open_stage(preset):
    plan = load_plan(preset)
    assert [s.name for s in plan.stages if s.open] == ["simplify"]
    assert select(plan, PassSelection(), discover_passes()) == plan
