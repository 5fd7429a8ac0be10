from __future__ import annotations

import pytest

from optcc.errors import ConfigError
from optcc.pipeline.registry import PassEntry, PassRegistry, discover_passes
from tests.pipeline.passes_for_tests import Base, DropNodes


def entry(name: str, distribution: str = "ours", made: object | None = None) -> PassEntry:
    return PassEntry(name, distribution, lambda: made if made is not None else DropNodes(name=name))


def test_two_distributions_may_not_offer_one_name():
    with pytest.raises(ConfigError) as caught:
        PassRegistry([entry("a.b", "ours"), entry("a.b", "theirs")])
    assert "'ours'" in caught.value.what
    assert "'theirs'" in caught.value.what


def test_listing_imports_nothing():
    def explode() -> Base:
        raise AssertionError

    registry = PassRegistry([PassEntry("b.b", "ours", explode), PassEntry("a.a", "ours", explode)])
    assert registry.names() == ("a.a", "b.b")
    assert "a.a" in registry
    assert [e.distribution for e in registry] == ["ours", "ours"]


def test_a_pass_is_made_once():
    registry = PassRegistry([entry("a.a")])
    assert registry.get("a.a") is registry.get("a.a")


def test_an_unknown_name_suggests_the_nearest():
    registry = PassRegistry([entry("fuse.conv-batchnorm")])
    with pytest.raises(ConfigError) as caught:
        registry.get("fuse.conv-batchnrom")
    assert "fuse.conv-batchnorm" in (caught.value.hint or "")


def test_a_pass_that_cannot_be_imported_names_its_distribution():
    def broken() -> Base:
        raise ImportError("no module named 'gone'")

    registry = PassRegistry([PassEntry("a.a", "theirs", broken)])
    with pytest.raises(ConfigError, match="'theirs' cannot be imported: no module named 'gone'"):
        registry.get("a.a")


def test_what_is_no_pass_is_refused():
    with pytest.raises(ConfigError, match="is no pass"):
        PassRegistry([entry("a.a", made=object())]).get("a.a")


def test_a_pass_must_carry_the_name_it_is_offered_under():
    with pytest.raises(ConfigError, match=r"calls itself 'other\.name'"):
        PassRegistry([entry("a.a", made=DropNodes(name="other.name"))]).get("a.a")


def test_installed_passes_can_all_be_made():
    registry = discover_passes()
    for name in registry.names():
        assert registry.get(name).name == name
