from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from optcc.artifacts.names import beside, inside

folder_names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=80,
).filter(lambda n: n not in (".", ".."))


@given(folder_names)
def test_a_site_knows_its_own_names_and_they_are_valid(name):
    for site in (beside(Path("/x") / name), inside(Path("/x") / name)):
        fresh = [site.new("stage"), site.new("failed"), site.lock, site.aside, site.replacing]
        assert all(site.owns(p.name) for p in fresh)
        assert all(len(p.name.encode()) <= 255 for p in fresh)
        assert not site.owns(name)


@given(folder_names, folder_names)
def test_a_site_never_owns_what_belongs_to_another(name, other):
    mine, theirs = beside(Path("/x") / name), beside(Path("/x") / other)
    if name != other:
        assert not mine.owns(theirs.new("stage").name)
        assert not mine.owns(theirs.lock.name)


def test_names_that_look_alike():
    a, b = beside(Path("/x/a")), beside(Path("/x/a.optcc"))
    assert not a.owns(b.new("stage").name)
    assert not a.owns("a.optcc-stage-00000000")
    assert not a.owns(".a.optcc-stage-00000000.bak")
    assert a.owns(".a.optcc-stage-00000000")
