from __future__ import annotations

import pytest

from optcc.config.selection import PassSelection, read_recipe
from optcc.errors import ConfigError


def recipe(tmp_path, text: str):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_says_what_the_options_say(tmp_path):
    text = '[passes]\nrun = ["+a.b"]\nonly = ["fuse.*"]\nskip = ["fuse.pad"]'
    assert read_recipe(recipe(tmp_path, text)) == PassSelection(
        run=("+a.b",), only=("fuse.*",), skip=("fuse.pad",)
    )


def test_an_empty_recipe_changes_nothing(tmp_path):
    assert not read_recipe(recipe(tmp_path, ""))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[passes", "no TOML"),
        ("passes = 3", "must be a table"),
        ("[pases]", "unknown key 'pases'"),
        ("[passes]\nskp = []", "unknown key 'skp'"),
        ('[passes]\nskip = "a"', "passes.skip must be a list of texts"),
        ("[passes]\nrun = [1]", "passes.run must be a list of texts"),
        ('[passes]\nrun = ["+a", "b"]', "mixed"),
    ],
)
def test_a_malformed_recipe_says_what_is_wrong(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        read_recipe(recipe(tmp_path, text))
    assert words in caught.value.what


def test_a_recipe_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file") as caught:
        read_recipe(tmp_path / "absent.toml")
    assert caught.value.where is not None
    assert caught.value.where.endswith("absent.toml")


def test_binary_recipes_are_refused(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no TOML"):
        read_recipe(path)


def test_options_come_after_the_recipe():
    first = PassSelection(run=("+a",), skip=("x",))
    second = PassSelection(run=("+b",), surgeons=("s.py:f",))
    joined = first.joined(second)
    assert joined.run == ("+a", "+b")
    assert joined.skip == ("x",)
    assert joined.surgeons == ("s.py:f",)


def test_additions_and_a_list_contradict_each_other():
    with pytest.raises(ConfigError, match="mixed"):
        PassSelection(run=("+a",)).joined(PassSelection(run=("b",)))
