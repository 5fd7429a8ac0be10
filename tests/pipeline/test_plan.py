from __future__ import annotations

import pytest

from optcc.errors import ConfigError
from optcc.passkit.contract import Fact
from optcc.pipeline.plan import load_plan, parse_plan, preset_names, validate_plan
from tests.pipeline.passes_for_tests import Base, registry

ONE = '[[stage]]\nname = "s"\npasses = ["a.a"]\n'


class Gives(Base):
    name = "a.gives"
    gives = frozenset({Fact.SHAPES})


class Needs(Base):
    name = "a.needs"
    needs = frozenset({Fact.SHAPES})


class Breaks(Base):
    name = "a.breaks"
    breaks = frozenset({Fact.SHAPES})


class NeedsRanges(Base):
    name = "a.lower"
    needs = frozenset({Fact.RANGES})


def plan(*stages: str):
    return parse_plan("\n".join(f"[[stage]]\n{s}" for s in stages), name="test")


def test_a_plan_keeps_the_order_of_its_author():
    made = plan('name = "one"\npasses = ["b.b", "a.a"]', 'name = "two"\npasses = ["a.a"]')
    assert [s.name for s in made.stages] == ["one", "two"]
    assert made.pass_names() == ("b.b", "a.a")
    assert made.stage("two").passes == ("a.a",)


def test_equal_texts_give_equal_plans():
    assert parse_plan(ONE, name="p") == parse_plan(ONE, name="p")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[stage", "no TOML"),
        ("", "no [[stage]]"),
        ('name = "x"', "unknown key 'name'"),
        ('[[stage]]\nname = "s"\npases = ["a"]', "unknown key 'pases'"),
        ('[[stage]]\npasses = ["a"]', "name None"),
        ('[[stage]]\nname = "s"\npasses = "a"', "must be a list of texts"),
        ('[[stage]]\nname = "s"\npasses = []', "has no passes"),
        (ONE + "repeat_until_stable = 0", "must be 1 to 64"),
        (ONE + "repeat_until_stable = true", "not a number"),
        (ONE + 'branch = "yes"', "must be true or false"),
        (ONE + 'assumes = ["luck"]', "no fact 'luck'"),
        (ONE + ONE, "appears twice"),
        ("extends = 3\n" + ONE, "extends is 3"),
        ('extends = "int4"\n' + ONE, "no preset 'int4'"),
        ('extends = "fp32"\nwithout = ["a.b"]\n' + ONE, "no pass 'a.b' to leave out"),
        ('extends = "fp32"\nwithout = "a.b"\n' + ONE, "must be a list of texts"),
        ('extends = "test"\n' + ONE, "extends itself"),
        ('extends = "fp32"\n[[stage]]\nname = "simplify"\npasses = ["a"]', "appears twice"),
    ],
)
def test_a_malformed_plan_says_what_is_wrong(text, words):
    with pytest.raises(ConfigError) as caught:
        parse_plan(text, name="test")
    assert words in caught.value.what


def test_a_plan_that_extends_a_preset_begins_with_its_stages():
    made = parse_plan('extends = "fp32"\n' + ONE, name="mine")
    assert made.stages[:-1] == load_plan("fp32").stages
    assert made.stages[-1] == parse_plan(ONE, name="p").stages[0]


def test_a_plan_can_leave_out_passes_of_the_preset():
    made = parse_plan('extends = "fp32"\nwithout = ["fuse.pad"]\n' + ONE, name="mine")
    left = set(load_plan("fp32").pass_names()) - set(made.pass_names())
    assert left == {"fuse.pad"}


def test_a_misspelt_key_gets_a_suggestion():
    with pytest.raises(ConfigError) as caught:
        parse_plan('[[stage]]\nname = "s"\npases = ["a"]', name="test")
    assert caught.value.hint == "did you mean 'passes'?"


def test_an_unknown_stage_or_preset_is_named():
    with pytest.raises(ConfigError, match="no stage 'x'"):
        parse_plan(ONE, name="p").stage("x")
    with pytest.raises(ConfigError, match="no preset 'int4'"):
        load_plan("int4")


def test_needs_must_be_given_before():
    known = registry(Gives(), Needs())
    validate_plan(plan('name = "s"\npasses = ["a.gives", "a.needs"]'), known)
    with pytest.raises(ConfigError, match=r"'a\.needs' needs shapes"):
        validate_plan(plan('name = "s"\npasses = ["a.needs", "a.gives"]'), known)


def test_the_second_round_must_find_its_facts_too():
    known = registry(Gives(), Needs(), Breaks())
    text = 'name = "s"\npasses = ["a.needs", "a.breaks"]'
    first = 'name = "f"\npasses = ["a.gives"]'
    validate_plan(plan(first, text), known)
    with pytest.raises(ConfigError, match=r"'a\.needs' needs shapes"):
        validate_plan(plan(first, f"{text}\nrepeat_until_stable = 4"), known)


def test_a_branch_keeps_its_facts_to_itself():
    known = registry(Gives(), Needs())
    branch = 'name = "b"\npasses = ["a.gives"]\nbranch = true'
    with pytest.raises(ConfigError, match="needs shapes"):
        validate_plan(plan(branch, 'name = "s"\npasses = ["a.needs"]'), known)


def test_a_stage_may_assume_what_the_driver_provides():
    known = registry(NeedsRanges())
    text = 'name = "lower"\npasses = ["a.lower"]'
    with pytest.raises(ConfigError, match="needs ranges"):
        validate_plan(plan(text), known)
    validate_plan(plan(f'{text}\nassumes = ["ranges"]'), known)


def test_initial_facts_count():
    validate_plan(plan('name = "s"\npasses = ["a.needs"]'), registry(Needs()), {Fact.SHAPES})


def test_unknown_passes_are_found_before_anything_runs():
    with pytest.raises(ConfigError, match=r"no pass 'a\.a'"):
        validate_plan(parse_plan(ONE, name="p"), registry(Gives()))


def test_presets_are_the_three_precisions():
    assert preset_names() == ("fp16", "fp32", "int8")
