"""Every code block of the README does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.calibrate.dataset import open_source
from optcc.graph.signature import Signature, TensorSpec
from tests.e2e.conftest import ROOT, environment

PARTS = ["Context", "Choice", "Evidence", "What would change our mind"]
MASKED = re.compile(r"[+-]?\d[\d.,]*")
WORST = re.compile(r"worst artifact\s+\S+")
WITHOUT_VNNI = re.compile(
    r"^warning: \S+ is made for processors with VNNI.*?this kind\n", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks(name: str) -> list[Block]:
    text = (ROOT / name).read_text("utf-8")
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]


def shell(line: str, cwd: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def session(block: Block) -> tuple[str, str]:
    first, *rest = re.sub(r"\\\n\s*", "", block.text).splitlines()
    assert first.startswith("$ ")
    return first.removeprefix("$ "), "\n".join(rest)


def words(text: str) -> Counter[str]:
    """Words without figures: those vary from machine to machine, and so does the wrapping."""
    for varying in (WITHOUT_VNNI, WORST, MASKED):
        text = varying.sub("#" if varying is MASKED else "", text)
    return Counter(text.split())


@pytest.fixture(scope="module")
def compiled(workspace: Path) -> tuple[Path, str]:
    """The workspace after the README's session, and what the session printed."""
    (block,) = [b for b in blocks("README.md") if b.language == "console"]
    return workspace, shell(session(block)[0], workspace)


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {b.language for b in blocks("README.md")} == {"sh", "console", "python", "text"}


def test_the_two_commands_come_first() -> None:
    assert blocks("README.md")[0] == Block("sh", "make demo\nmake test\n")


def test_the_chinese_readme_has_the_same_blocks() -> None:
    assert blocks("README.zh.md") == blocks("README.md")


@pytest.mark.skipif(find_spec("tensorrt_rtx") is None, reason="the session builds an engine")
def test_the_session_prints_what_is_shown(compiled: tuple[Path, str]) -> None:
    (block,) = [b for b in blocks("README.md") if b.language == "console"]
    assert words(compiled[1]) == words(session(block)[1])


def commands() -> list[str]:
    return [line for b in blocks("README.md") if b.language == "sh" for line in b.text.splitlines()]


@pytest.mark.parametrize("line", [c for c in commands() if c.startswith("optcc ")])
def test_commands_work(compiled: tuple[Path, str], line: str) -> None:
    if line.startswith("optcc inspect"):
        folder = compiled[0] / line.split()[-1]
        assert folder.exists(), "an earlier command of the README makes it"
    assert shell(line, compiled[0])


@pytest.mark.parametrize("line", [c for c in commands() if c.startswith("make ")])
def test_make_knows_the_target(line: str) -> None:
    shell(line.replace("make", "make -n"), ROOT)


def test_every_command_is_covered() -> None:
    assert [c for c in commands() if not c.startswith(("optcc ", "make ", "pip install "))] == []


@pytest.mark.parametrize("line", [c for c in commands() if c.startswith("pip install ")])
def test_pip_installs_what_this_project_builds(line: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    name, extras = re.fullmatch(r"pip install '?([\w.-]+)(?:\[([\w,]+)\])?'?", line).groups()
    assert name in (".", project["name"])
    assert set((extras or "").split(",")) - {""} <= set(project["optional-dependencies"])


@pytest.mark.parametrize("block", [b for b in blocks("README.md") if b.language == "python"])
def test_python_works(compiled: tuple[Path, str], block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=compiled[0],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.skipif(find_spec("tensorrt_rtx") is None, reason="the listing has an engine")
def test_the_folder_holds_what_is_listed(compiled: tuple[Path, str]) -> None:
    (block,) = [b for b in blocks("README.md") if b.language == "text"]
    listed = re.findall(r"^  (\S+)", block.text, re.M)
    folder = compiled[0] / block.text.split("/")[0]
    assert {p.name for p in folder.iterdir()} == {*listed, "report.md", "report.json"}


def documents() -> list[str]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("calibration_data/*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    local = [t for t in targets if "://" not in t]
    assert [t for t in local if not (ROOT / name).parent.joinpath(t).exists()] == []


def test_every_decision_is_listed_and_says_what_was_measured() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text("utf-8")
    for path in sorted(folder.glob("*.md")):
        if path.name != "README.md":
            assert f"]({path.name})" in index
            text = path.read_text("utf-8")
            assert re.findall(r"^## (.+)$", text, re.M) == PARTS
            assert len(text.splitlines()) <= 60


def test_the_code_of_the_calibration_guide_makes_a_file_that_loads(tmp_path: Path) -> None:
    (block,) = [b for b in blocks("calibration_data/README.md") if b.language == "python"]
    command = [sys.executable, "-W", "error", "-c", block.text]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    (made,) = tmp_path.iterdir()
    spec = TensorSpec("input", ir.DataType.FLOAT, ("n", 3, 32, 32))
    data = open_source(str(made), signature=Signature((spec,), ()), kind="calib")
    assert data.samples == 256


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs/report.png").stat().st_size < 200_000
