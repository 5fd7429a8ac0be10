"""The same inputs give the same bytes, whatever the folder and the hash seed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from tests.e2e.conftest import DIGITS, ROOT, optcc


def compile_in(folder: Path, hash_seed: str) -> Path:
    for name in ("examples", "calibration_data"):
        shutil.copytree(ROOT / name, folder / name)
    line = ["compile", DIGITS, "--precision", "int8", "--eval", "examples/digits/eval.npz"]
    done = optcc([*line, "-o", "out"], folder, PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_two_folders_two_hash_seeds_one_result(tmp_path: Path) -> None:
    one = compile_in(tmp_path / "a", "0")
    other = compile_in(tmp_path / "another folder", "4242")
    manifest = (one / "manifest.json").read_bytes()
    assert (other / "manifest.json").read_bytes() == manifest
    files = sorted(p.name for p in one.iterdir() if not p.name.startswith("report."))
    assert "model.onnx" in files
    for name in files:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    text = manifest.decode()
    assert str(tmp_path) not in text
    for name in set(files) - {"manifest.json"}:
        assert hashlib.sha256((one / name).read_bytes()).hexdigest() in text
    assert json.loads(manifest)


def test_compiling_the_output_again_changes_no_byte(tmp_path: Path) -> None:
    """The graph passes leave nothing behind that they would change in another round."""
    first = ROOT / DIGITS
    for out in ("once", "twice"):
        arguments = ["compile", first, "--precision", "fp32", "--backend", "onnxruntime"]
        done = optcc([*arguments, "-o", out], tmp_path)
        assert done.returncode == 0, done.stderr
        first = tmp_path / out / "model.onnx"
    once, twice = ((tmp_path / out / "model.onnx").read_bytes() for out in ("once", "twice"))
    assert once == twice
