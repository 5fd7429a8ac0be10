"""Build a model that a test made, for real, and keep what came of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.backends.contract import BuildJob, BuildOutcome, NodeAchieved
from optcc.backends.tensorrt_rtx import TensorrtRtx
from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.graph.io import write_model
from optcc.progress import Silent

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None,
    reason="tensorrt_rtx is not installed; it exists for Linux x86-64 and Windows",
)


def profile(**largest: tuple[int, ...]) -> ShapeProfile:
    """Batch 1 up to the given shape, for each named input."""
    inputs = [
        InputShapes(name=name, min=(1, *dims[1:]), opt=(1, *dims[1:]), max=dims)
        for name, dims in largest.items()
    ]
    return ShapeProfile(tuple(inputs), "--shapes")


def job(
    model: ir.Model,
    folder: Path,
    *,
    shapes: ShapeProfile | None = None,
    wanted: Mapping[str, str] | None = None,
    targets: tuple[str, ...] = (),
) -> BuildJob:
    """Write the model and describe the job."""
    write_model(model, folder / "model.onnx")
    return BuildJob(
        model=folder / "model.onnx",
        out=folder / "model.tensorrt_rtx.engine",
        profile=shapes or ShapeProfile((), "static"),
        targets=targets,
        wanted=wanted or {},
    )


def build(model: ir.Model, folder: Path, **options: object) -> BuildOutcome:
    """Build with tensorrt_rtx."""
    return TensorrtRtx().build(job(model, folder, **options), Silent())  # type: ignore[arg-type]


def node(outcome: BuildOutcome, name: str) -> NodeAchieved:
    """The entry of one node."""
    return next(n for n in outcome.nodes if n.node == name)
