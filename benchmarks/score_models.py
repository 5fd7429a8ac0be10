"""Compile real trained models and score every emitted artifact on rows that calibration never saw.

usage: python benchmarks/score_models.py MODELS [--only NAME ...] [--precision int8] [--json FILE]

MODELS is a folder with `score.py` and one folder a model (`data.npz`, `meta.json`, the ONNX files).
Each model is copied away, compiled by the command line in a child process, and scored twice: before
and after, on the same rows. Nothing is written into MODELS.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One model: which rows calibrate, which rows are scored.

    Attributes:
        calib: Rows that give the calibration feeds.
        evaluation: Rows that the figures are taken on.
        metric: Key of score.py's result.
        stacked: One npz with samples on the first axis; else one npz per feed.
    """

    model: str
    calib: Callable[[Arrays], Arrays]
    evaluation: Callable[[Arrays], Arrays]
    metric: str = "top1"
    stacked: bool = True


def rows(index: Callable[[Arrays], np.ndarray]) -> Callable[[Arrays], Arrays]:
    """Take the same rows of every array that has one entry per sample."""

    def take(data: Arrays) -> Arrays:
        chosen = index(data)
        total = max(len(v) for v in data.values())
        return {k: v[chosen] if len(v) == total else v for k, v in data.items()}

    return take


def separate(prefix: str = "calib_") -> Callable[[Arrays], Arrays]:
    """Use the arrays that the data set keeps apart for calibration."""

    def take(data: Arrays) -> Arrays:
        found = {k[len(prefix) :]: v for k, v in data.items() if k.startswith(prefix)}
        count = len(next(iter(found.values())))
        return {**found, "label": np.arange(count) % 2}

    return take


def scenes(first: int, last: int) -> Callable[[Arrays], Arrays]:
    """Take scenes `first` to `last` of a detection set, with their boxes."""

    def take(data: Arrays) -> Arrays:
        keep = (data["box_image"] >= first) & (data["box_image"] < last)
        return {
            "images": data["images"][first:last],
            "boxes": data["boxes"][keep],
            "box_image": data["box_image"][keep] - first,
        }

    return take


def everything(data: Arrays) -> Arrays:
    """Take all rows."""
    return data


def _not_in(data: Arrays, index: np.ndarray, key: str) -> np.ndarray:
    return np.setdiff1d(np.arange(len(data[key])), index)


CASES: dict[str, Case] = {
    "cifar10_resnet": Case("resnet20.onnx", separate(), everything),
    "mnist_cnn": Case("mnist_cnn.onnx", separate(), everything),
    "kws_dscnn": Case(
        "kws_dscnn.onnx",
        rows(lambda d: d["calib_idx"]),
        rows(lambda d: _not_in(d, d["calib_idx"], "mfcc")),
    ),
    "face_yunet": Case("yunet_n_320.onnx", scenes(0, 16), scenes(16, 28), "ap"),
    "face_ultraface": Case("ultraface_rfb320.onnx", scenes(0, 16), scenes(16, 28), "ap"),
    "ppocr_cls": Case("ppocr_cls.onnx", separate(), everything),
    "magika": Case(
        "magika_v3_3.onnx",
        rows(lambda d: np.arange(0, len(d["bytes"]), 4)),
        rows(lambda d: _not_in(d, np.arange(0, len(d["bytes"]), 4), "bytes")),
    ),
    "bert2_sentiment": Case("bert2_sentiment.onnx", separate(), everything),
    "minilm_sts": Case("minilm_l6.onnx", everything, everything, "spearman"),
    "silero_vad": Case(
        "silero_vad_16k_noif.onnx",
        rows(lambda _: np.arange(0, 4)),
        rows(lambda _: np.arange(4, 12)),
        "frame_accuracy",
        stacked=False,
    ),
    "silero_vad_if": Case(
        "silero_vad.onnx",
        rows(lambda _: np.arange(0, 4)),
        rows(lambda _: np.arange(4, 12)),
        "frame_accuracy",
        stacked=False,
    ),
    "cifar10_resnet56": Case("resnet56.onnx", separate(), everything),
}
FOLDERS = {"silero_vad_if": "silero_vad", "cifar10_resnet56": "cifar10_resnet"}


def load_scorer(models: Path) -> ModuleType:
    """Import score.py of the models folder."""
    spec = importlib.util.spec_from_file_location("score", models / "score.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"no score.py in {models}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_subset(source: Path, target: Path, data: Arrays, model: str) -> None:
    """Make a score.py folder that holds `data` and one model entry."""
    target.mkdir()
    meta = json.loads((source / "meta.json").read_text())
    meta["models"] = [m for m in meta["models"] if m["file"] == model]
    meta["eval"] = "data.npz"
    (target / "meta.json").write_text(json.dumps(meta))
    np.savez(target / "data.npz", **data)


def record(score: ModuleType, folder: Path, model: Path) -> list[Arrays]:
    """Return the feeds that scoring this folder sends to the model."""
    feeds: list[Arrays] = []
    predict = score.make_predict(str(model))
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    known = {i.name for i in onnxruntime.InferenceSession(str(model)).get_inputs()}

    def spy(feed: Arrays) -> Arrays:
        feeds.append({k: v for k, v in feed.items() if k in known})
        return dict(predict(feed))

    score.score(str(folder), predict=spy)
    return feeds


OWN_METRIC = '''"""The metric of this data set, for --metric."""

import importlib.util

spec = importlib.util.spec_from_file_location("score", {score!r})
score = importlib.util.module_from_spec(spec)
spec.loader.exec_module(score)


def own(outputs, labels):
    """Replay the outputs in the order of the feeds; labels come from the folder."""
    calls = {{"done": 0}}

    def predict(feed):
        count = len(next(a for a in feed.values() if a.ndim))
        first, calls["done"] = calls["done"], calls["done"] + count
        width = {{n: len(a) // {samples} for n, a in outputs.items()}}
        return {{n: a[first * width[n] : (first + count) * width[n]] for n, a in outputs.items()}}

    return score.score({folder!r}, predict=predict)[0]["metrics"][{metric!r}]
'''


def write_own_metric(score: ModuleType, work: Path, case: Case, feeds: list[Arrays]) -> list[str]:
    """Write a module that computes the data set's own metric; return the options that use it."""
    if case.metric == "top1":
        return []
    samples = sum(len(next(a for a in f.values() if a.ndim)) for f in feeds)
    text = OWN_METRIC.format(
        score=str(score.__file__), samples=samples, folder=str(work / "eval"), metric=case.metric
    )
    (work / "own_metric.py").write_text(text)
    return ["--metric", "own_metric:own"]


def save_feeds(feeds: list[Arrays], target: Path, stacked: bool, labels: np.ndarray | None) -> Path:
    """Write feeds in one of the two formats that `--calib` reads."""
    if not stacked:
        target.mkdir()
        for k, feed in enumerate(feeds):
            np.savez(target / f"{k:05d}.npz", **feed)
        return target
    arrays = {n: np.concatenate([f[n] for f in feeds]) for n in feeds[0]}
    if labels is not None:
        arrays["labels"] = labels
    np.savez(target.with_suffix(".npz"), **arrays)
    return target.with_suffix(".npz")


def prepare(
    score: ModuleType, source: Path, case: Case, work: Path
) -> tuple[dict[str, Path], list[str]]:
    """Lay out model, calibration and evaluation feeds under `work`; return paths and options."""
    model = Path(shutil.copy(source / case.model, work / case.model))
    data = dict(np.load(source / "data.npz"))
    write_subset(source, work / "eval", case.evaluation(data), case.model)
    labels = case.evaluation(data).get("label") if case.metric == "top1" else None
    if (source / "calib.npz").exists():
        calib = Path(shutil.copy(source / "calib.npz", work / "calib.npz"))
    else:
        write_subset(source, work / "calib_rows", case.calib(data), case.model)
        feeds = record(score, work / "calib_rows", model)
        calib = save_feeds(feeds, work / "calib", case.stacked, None)
    feeds = record(score, work / "eval", model)
    evaluation = save_feeds(feeds, work / "evaluation", case.stacked, labels)
    paths = {"model": model, "calib": calib, "eval": evaluation, "folder": work / "eval"}
    return paths, write_own_metric(score, work, case, feeds)


def compile_model(
    paths: dict[str, Path], out: Path, precision: str, extra: list[str]
) -> subprocess.CompletedProcess[str]:
    """Run `optcc compile` as a user would."""
    command = [sys.executable, "-m", "optcc", "compile", str(paths["model"]), "-o", str(out)]
    command += ["--precision", precision, "--calib", str(paths["calib"])]
    command += ["--eval", str(paths["eval"]), *extra]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=paths["model"].parent
    )


def metric_of(score: ModuleType, folder: Path, model: Path, metric: str) -> float:
    """Score one ONNX file."""
    predict = score.make_predict(str(model))
    return float(score.score(str(folder), predict=predict)[0]["metrics"][metric])


def summarize(out: Path) -> dict[str, Any]:
    """Pick the figures of the table from report.json."""
    report = json.loads((out / "report.json").read_text())
    speed = {r["file"]: r["speedup"] for r in report["latency"]["artifacts"] if r.get("speedup")}
    engines = [
        {k: e.get(k) for k in ("backend", "status", "bytes", "build_s", "achieved", "reason")}
        | {"fallbacks": len(e.get("fallbacks", []))}
        for e in report["engines"]
    ]
    return {
        "verdict": report["verdict"],
        "reasons": report["reasons"],
        "speedup": speed,
        "engines": engines,
        "compile_s": report["resources"]["compile_s"],
        "peak_mib": report["resources"]["peak_mib"],
    }


def run_case(
    score: ModuleType, models: Path, name: str, precision: str, keep: Path | None, extra: list[str]
) -> dict[str, Any]:
    """Compile and score one model."""
    case = CASES[name]
    source = models / FOLDERS.get(name, name)
    if not (source / case.model).exists():
        return {"model": name, "status": f"{case.model} is not there"}
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        paths, options = prepare(score, source, case, work)
        out = ((keep or work) / f"{name}.{precision}.optcc").resolve()
        run = compile_model(paths, out, precision, [*options, *extra, "--force"])
        row: dict[str, Any] = {"model": name, "exit": run.returncode, "metric": case.metric}
        row["original"] = metric_of(score, paths["folder"], paths["model"], case.metric)
        if run.returncode != 0:
            return {**row, "status": (run.stderr or run.stdout).strip().splitlines()[-6:]}
        row["bytes_ratio"] = {
            f.name: f.stat().st_size / paths["model"].stat().st_size for f in out.glob("*.onnx")
        }
        row["scores"] = {
            f.name: metric_of(score, paths["folder"], f, case.metric)
            for f in sorted(out.glob("*.onnx"))
        }
        return {**row, **summarize(out)}


def main() -> None:
    """Run the chosen cases and print one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--precision", default="int8", choices=["fp32", "fp16", "int8"])
    parser.add_argument("--keep", type=Path, help="keep the output folders here")
    parser.add_argument("--json", type=Path)
    arguments, extra = parser.parse_known_args()
    score = load_scorer(arguments.models)
    table = []
    for name in arguments.only:
        row = run_case(score, arguments.models, name, arguments.precision, arguments.keep, extra)
        print(json.dumps(row), flush=True)
        table.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
