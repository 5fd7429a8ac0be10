"""ONNX Runtime on the CPU: runs the ONNX file itself; what it achieved is read from its own graph.

The runtime writes the graph that it made of ours. It is read at the level below the layout
rewrites, which rename nodes and change no precision.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from optcc.backends.contract import (
    Availability,
    BuildJob,
    BuildOutcome,
    BuildStatus,
    NodeAchieved,
)
from optcc.errors import BackendError, WriteError
from optcc.progress import Progress

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OnnxRuntime"]

_WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_INT8_OPS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
    }
)
_MOVES_DATA = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "MaxPool",
        "Pad",
        "Reshape",
        "Resize",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
_FUSED_NAME = re.compile(r"^(?:fused )?(.*?)(?:_token_\d+|/\w+Fusion/?)*$", re.S)
_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?")
_KEPT_FLOAT = "ONNX Runtime keeps it in float between DequantizeLinear and QuantizeLinear"


class OnnxRuntime:
    """The reference runtime as a backend; its artifact is the ONNX file."""

    name = "onnxruntime"
    builds_file = False

    def availability(self) -> Availability:
        """Say whether the package is installed, without importing it."""
        if importlib.util.find_spec(self.name) is None:
            hint = "pip install 'onnxruntime>=1.32,<2'"
            return Availability(ok=False, reason="onnxruntime is not installed", hint=hint)
        return Availability(ok=True, version=_version())

    def build(self, job: BuildJob, progress: Progress) -> BuildOutcome:
        """Load `job.model` and read the runtime's own graph; see the `Backend` protocol."""
        progress.stage("loading the model in onnxruntime")
        from optcc.graph.io import read_model

        graph = job.graph if job.graph is not None else read_model(job.model)
        begin = time.monotonic()
        try:
            nodes, launches = self._achieved(job, graph)
        except BackendError as error:
            return BuildOutcome(
                status=BuildStatus.FAILED,
                version=_version(),
                targets=("cpu",),
                reason=f"ONNX Runtime refuses the model: {_STATUS.sub('', error.what)}",
                node=_named_node(error.what, graph),
            )
        return BuildOutcome(
            status=BuildStatus.BUILT,
            build_s=round(time.monotonic() - begin, 3),
            version=_version(),
            targets=("cpu",),
            nodes=nodes,
            launches=launches,
        )

    def runs_on(self, outcome: BuildOutcome) -> str:
        """Say where the ONNX file runs."""
        return f"any CPU with ONNX Runtime {outcome.version} or newer"

    def _achieved(self, job: BuildJob, graph: ir.Model) -> tuple[tuple[NodeAchieved, ...], int]:
        from optcc.graph.io import read_model
        from optcc.runtime.session import OptimizationLevel, Session

        with tempfile.TemporaryDirectory(prefix="optcc-") as folder:
            saved = Path(folder) / "optimized.onnx"
            try:
                Session(job.model, level=OptimizationLevel.EXTENDED, save_optimized=saved)
            except BackendError as error:
                _check_space(Path(folder), job.model)
                raise error from error.__cause__
            made = read_model(saved)
            index = {_original_name(n.name or ""): n for n in made.graph.all_nodes()}
            launches = sum(1 for _ in made.graph.all_nodes())
        return tuple(_reports(graph, index, job.wanted)), launches


def _check_space(folder: Path, model: Path) -> None:
    """The runtime does not say why it failed to write.

    Raises:
        WriteError: There is no room for another copy of `model` in `folder`.
    """
    needed = sum(p.stat().st_size for p in model.parent.glob(f"{model.name}*"))
    if shutil.disk_usage(folder).free < needed:
        raise WriteError(
            f"no space left for temporary files in {folder.parent}",
            hint="free some space, or set TMPDIR to another folder",
        )


def _reports(
    graph: ir.Model, index: Mapping[str, ir.Node], wanted: Mapping[str, str]
) -> Iterator[NodeAchieved]:
    for node in graph.graph.all_nodes():
        name = node.name or ""
        if node.op_type in _WEIGHTED_OPS or name in wanted:
            yield _report(node, index.get(name), wanted.get(name, ""))


def _report(node: ir.Node, made: ir.Node | None, wanted: str) -> NodeAchieved:
    reason = ""
    if made is not None:
        got = _precision(made)
        reason = _why_float(made) if wanted == "int8" and got != "int8" else ""
    elif node.op_type in _WEIGHTED_OPS:
        got, reason = "unknown", "ONNX Runtime's graph has no node of this name"
    else:
        got, reason = "folded", "no node of its own in ONNX Runtime's graph"
    return NodeAchieved(
        node=node.name or "",
        op_type=node.op_type,
        wanted=wanted,
        got=got,
        reason=reason,
        launch=f"{made.op_type} {made.name}" if made is not None else "",
    )


def _precision(node: ir.Node) -> str:
    """Return what a node of the runtime's graph computes in; the CPU widens fp16 to fp32."""
    if node.op_type in _INT8_OPS or node.op_type.startswith("QLinear"):
        return "int8"
    if node.op_type == "MatMulNBits":
        return "int4"
    return "int8" if _reads_narrow(node) else "fp32"


def _why_float(node: ir.Node) -> str:
    producers = [v.producer() for v in node.inputs if v is not None]
    if any(p is not None and p.op_type == "DequantizeLinear" for p in producers):
        return _KEPT_FLOAT
    return "ONNX Runtime has no int8 kernel that takes it in"


def _reads_narrow(node: ir.Node) -> bool:
    """Whether a node that only moves data moves 8-bit data."""
    while node.op_type in _MOVES_DATA and node.inputs and node.inputs[0] is not None:
        producer = node.inputs[0].producer()
        if producer is None:
            return False
        node = producer
        if node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear"):
            return True
    return False


def _original_name(name: str) -> str:
    found = _FUSED_NAME.match(name)
    return found.group(1) if found else name


def _named_node(text: str, graph: ir.Model) -> str:
    for node in graph.graph.all_nodes():
        if node.name and re.search(rf"""["'(]{re.escape(node.name)}["')]""", text):
            return node.name
    return ""


def _version() -> str:
    try:
        return importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        return ""
