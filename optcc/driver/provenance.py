"""What the result was made from: the manifest's content and the command that makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from optcc.artifacts.manifest import build_manifest, describe_source
from optcc.config.preprocessing import Preprocessing
from optcc.config.request import CompileRequest
from optcc.driver.data import Data
from optcc.driver.work import Work
from optcc.measure.environment import package_versions

__all__ = ["manifest_of", "reproduce_line"]


def manifest_of(work: Work) -> bytes:
    """Return manifest.json for the files that are staged."""
    request, loaded = work.request, work.loaded
    return build_manifest(
        work.folder.stage,
        input={"name": loaded.name, "sha256": loaded.sha256, "bytes": loaded.nbytes},
        options={
            "precision": work.data.precision.value,
            "calib": _source(request, work.data.calib),
            "eval": _source(request, request.evaluation),
            "ranges": describe_source(request.ranges) if request.ranges is not None else None,
            "metric": work.metric,
            "backends": list(request.backends),
            "targets": list(request.targets),
            "shapes": request.shapes,
            "max_drop": request.max_drop,
            "cpu_class": request.cpu_class.value,
            "calibrator": request.calibrator.value,
            "verify": request.verify.value,
            "keep_going": request.keep_going,
            "preprocessing": asdict(request.preprocessing) if request.preprocessing else None,
            "passes": list(request.passes.run),
            "only_pass": list(request.passes.only),
            "skip_pass": list(request.passes.skip),
            "surgeons": [_surgeon(text) for text in request.passes.surgeons],
            "recipe": describe_source(request.recipe) if request.recipe is not None else None,
        },
        versions=package_versions(),
        seeds={"seed": request.seed},
    )


def _source(request: CompileRequest, text: str | None) -> object:
    if text is None:
        return None
    for folder in (Path(), request.model.parent):
        path = folder / text
        if path.exists():
            return describe_source(path)
    return text


def _surgeon(text: str) -> object:
    path, _, function = text.rpartition(":")
    return {"function": function, "file": describe_source(Path(path))}


def _base_of_function(text: str) -> str:
    path, _, function = text.rpartition(":")
    return f"{Path(path).name}:{function}"


def reproduce_line(request: CompileRequest, data: Data) -> str:
    """Return the command that makes the same result, with base names for paths."""
    words = ["optcc", "compile", request.model.name, "--precision", data.precision.value]
    for option, value in _options(request, data):
        words += [option, value]
    words += ["--swap-channels"] if request.preprocessing.swap else []
    words += ["--keep-going"] if request.keep_going else []
    return shlex.join(words)


def _options(request: CompileRequest, data: Data) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str | None]] = [
        ("--calib", _base(data.calib)),
        ("--eval", _base(request.evaluation)),
        ("--ranges", request.ranges.name if request.ranges is not None else None),
        ("--metric", request.metric),
        *(("--backend", name) for name in request.backends),
        *(("--target", name) for name in request.targets),
        ("--shapes", request.shapes),
        ("--max-drop", "none" if request.max_drop is None else f"{request.max_drop:g}"),
        ("--cpu-class", request.cpu_class.value),
        ("--calibrator", request.calibrator.value),
        ("--verify", request.verify.value),
        *_preprocessing(request.preprocessing),
        ("--recipe", request.recipe.name if request.recipe is not None else None),
        *(("--passes", name) for name in request.passes.run),
        *(("--only-pass", name) for name in request.passes.only),
        *(("--skip-pass", name) for name in request.passes.skip),
        *(("--surgeon", _base_of_function(text)) for text in request.passes.surgeons),
        ("--seed", str(request.seed)),
    ]
    defaults = {
        "--max-drop": "1",
        "--cpu-class": "vnni",
        "--calibrator": "auto",
        "--verify": "each",
        "--seed": "0",
    }
    return [(o, v) for o, v in pairs if v is not None and defaults.get(o) != v]


def _preprocessing(wanted: Preprocessing) -> list[tuple[str, str | None]]:
    def numbers(values: Sequence[float]) -> str | None:
        return ",".join(map(repr, values)) or None

    return [
        ("--input-dtype", wanted.dtype),
        ("--input-scale", repr(wanted.scale) if wanted.scale != 1 else None),
        ("--mean", numbers(wanted.mean)),
        ("--std", numbers(wanted.std)),
    ]


def _base(text: str | None) -> str | None:
    if text is None or text == "random" or not Path(text).exists():
        return text
    return Path(text).name
