"""Sizes and names that keep the project readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT, sources

LONGEST_MODULE, LONGEST_FUNCTION = 500, 60
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "core2", "manager"}


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body: a signature with one documented option per line is no complexity."""
    return (node.end_lineno or 0) - node.body[0].lineno + 1


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_modules_are_short() -> None:
    long = [
        relative(p) for p in sources() if len(p.read_text("utf-8").splitlines()) > LONGEST_MODULE
    ]
    assert long == []


def test_functions_are_short() -> None:
    long = [
        f"{relative(p)}:{f.name}"
        for p in sources()
        for f in functions(p)
        if body_lines(f) > LONGEST_FUNCTION
    ]
    assert long == []


def test_modules_are_named_after_what_they_hold() -> None:
    assert [relative(p) for p in sources() if p.stem in EMPTY_NAMES] == []


def test_every_package_is_a_package() -> None:
    folders = {p.parent for p in sources()}
    assert [relative(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


@pytest.mark.parametrize("words", ["raise NotImplementedError", "TODO", "FIXME", "XXX"])
def test_nothing_is_left_for_later(words: str) -> None:
    assert [relative(p) for p in sources() if words in p.read_text("utf-8")] == []


def test_no_environment_variable_changes_a_result() -> None:
    allowed = {"optcc/backends/child.py"}
    readers = [
        relative(p)
        for p in sources()
        if "os.environ" in p.read_text("utf-8") or "getenv" in p.read_text("utf-8")
    ]
    assert set(readers) <= allowed


def test_every_pass_has_its_own_test() -> None:
    """A pass module is one that the entry points name."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    modules = {t.split(":")[0] for t in project["entry-points"]["optcc.passes"].values()}
    missing = []
    for module in sorted(modules):
        *folders, name = module.split(".")
        if not ROOT.joinpath("tests", *folders, f"test_{name}.py").exists():
            missing.append(module)
    assert missing == []
