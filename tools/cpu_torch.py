"""Install PyTorch without CUDA, in the range that pyproject.toml states.

On Linux the wheel of the public index brings gigabytes of CUDA libraries. Where pip would take that
one, PyTorch's own index of CPU builds is used instead.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirement() -> str:
    """Return the requirement of torch itself in the `torch` extra."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    (only,) = (r for r in project["optional-dependencies"]["torch"] if r.startswith("torch>"))
    return str(only)


def pip(*arguments: str) -> str:
    """Run pip of this interpreter and return what it printed."""
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def would_install(wanted: str) -> str:
    """Return the version that pip would take; empty when a fitting one is installed."""
    report = pip("install", "--quiet", "--dry-run", "--no-deps", "--report", "-", wanted)
    found = json.loads(report)["install"]
    return str(found[0]["metadata"]["version"]) if found else ""


def brings_cuda(candidate: str) -> bool:
    """Return whether this build needs the CUDA libraries."""
    return sys.platform == "linux" and not candidate.endswith("+cpu")


def main() -> None:
    """Install it, or leave what fits alone."""
    wanted = requirement()
    candidate = would_install(wanted)
    if not candidate:
        print(f"torch {version('torch')} is installed")
        return
    index = ["--index-url", CPU_INDEX] if brings_cuda(candidate) else []
    pip("install", "--quiet", *index, wanted)
    print(f"torch {version('torch')} installed")


if __name__ == "__main__":
    main()
