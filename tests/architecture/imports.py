"""The imports of every module of the project, read without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Import:
    """`module` imports `name`; `where` is how: "top", "function" or "types" (checking only)."""

    module: str
    name: str
    where: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name} ({self.where})"


@cache
def sources() -> tuple[Path, ...]:
    """Every Python file of both packages."""
    return tuple(sorted(p for top in ("optcc", "passes") for p in (ROOT / top).rglob("*.py")))


@cache
def imports() -> tuple[Import, ...]:
    """Every import statement of both packages."""
    return tuple(found for path in sources() for found in read(path.read_text("utf-8"), path))


def read(text: str, path: Path) -> Iterator[Import]:
    """The imports of one file; `path` lies under ROOT."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    pending: list[tuple[ast.AST, str]] = [(ast.parse(text), "top")]
    while pending:
        node, where = pending.pop()
        for name in _names(node):
            yield Import(module, name, where, getattr(node, "lineno", 0))
        pending.extend((child, _where(node, child, where)) for child in ast.iter_child_nodes(node))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import in line {node.lineno}"
        package = node.module or ""
        known = ROOT / package.replace(".", "/")
        return [
            f"{package}.{a.name}"
            if (known / a.name).exists() or _is_module(known / a.name)
            else package
            for a in node.names
        ]
    return []


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").exists()


def _where(node: ast.AST, child: ast.AST, where: str) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return "function"
    checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return "types" if checking and child is not node.test else where
