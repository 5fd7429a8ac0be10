from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGITS = "examples/digits/digits.onnx"


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with this interpreter's commands first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "COLUMNS": "100"} | changes


def optcc(arguments: Sequence[str], cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "optcc", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shipped example and its data, as in a checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("examples", "calibration_data"):
        shutil.copytree(ROOT / name, folder / name)
    return folder
