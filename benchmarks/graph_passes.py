"""What the graph passes do to large and to real models, and how long they take.

usage:
    python benchmarks/graph_passes.py bert [--layers 12]       both exporters of torch, BERT size
    python benchmarks/graph_passes.py scale [--nodes 1000 ...] time against the number of nodes
    python benchmarks/graph_passes.py models FOLDER            node counts and latency at fp32,
                                                               against onnxslim and ONNX Runtime

Every row is one JSON line. Latency is interleaved in one process, one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

SYMBOLS = {"batch": 1, "N": 1, "n": 1, "seq": 128}


def emit(**row: object) -> None:
    """Print one row."""
    print(json.dumps(row), flush=True)


def operators(path: Path) -> Counter[str]:
    """Return the operators of all graphs of a model."""
    model = ir.load(path)
    return Counter(n.op_type for n in model.graph.all_nodes())


def compiled(model: Path, out: Path, *options: str) -> dict[str, Any]:
    """Compile at fp32 in a child process; return seconds, peak and report."""
    command = [sys.executable, "-m", "optcc", "compile", str(model), "-o", str(out)]
    command += ["--precision", "fp32", "--backend", "onnxruntime", "--force", "--max-drop", "none"]
    began = time.perf_counter()
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{model}: exit {done.returncode}\n{done.stderr}")
    report = json.loads((out / "report.json").read_text())
    return {"wall_s": round(seconds, 2), "report": report}


def stage_seconds(report: dict[str, Any]) -> float:
    """Return what the graph passes took, checks included."""
    stages = report["resources"]["stages"]
    return round(sum(stages.get(name, 0.0) for name in ("canonicalize", "simplify")), 2)


def rewrites(report: dict[str, Any]) -> dict[str, int]:
    """Return the number of rewrites of each pass that made any."""
    return {p["name"]: p["rewrites"] for p in report["passes"] if p["rewrites"]}


# ---- BERT


def encoder(layers: int, width: int, heads: int) -> object:
    """Return a post-norm encoder of BERT's structure, as torch users write it."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.dense = (
                nn.Linear(width, width) for _ in range(4)
            )
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def split(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(x.shape[0], x.shape[1], heads, width // heads).transpose(1, 2)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            q, k, v = (self.split(p(x)) for p in (self.query, self.key, self.value))
            scores = q @ k.transpose(-1, -2) / (width // heads) ** 0.5 + mask
            context = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
            x = self.norm1(x + self.dense(context))
            return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(30522, width), nn.Embedding(512, width)
            self.norm = nn.LayerNorm(width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))

        def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            mask = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * -10000.0
            places = torch.arange(ids.shape[1], device=ids.device)
            x = self.norm(self.words(ids) + self.places(places))
            for layer in self.layers:
                x = layer(x, mask)
            return x

    torch.manual_seed(0)
    return Encoder().eval()


def export_bert(folder: Path, layers: int, *, dynamo: bool) -> Path:
    """Export with one of torch's exporters, batch dynamic."""
    import torch

    path = folder / ("dynamo.onnx" if dynamo else "torchscript.onnx")
    ids = torch.randint(0, 30522, (2, 128))
    feeds = (ids, torch.ones(2, 128, dtype=torch.int64))
    names = {"input_names": ["ids", "attention_mask"], "output_names": ["hidden"]}
    model = encoder(layers, 768, 12)
    if dynamo:
        batch = torch.export.Dim("batch", min=1, max=64)
        shapes = {"ids": {0: batch}, "attention_mask": {0: batch}}
        torch.onnx.export(
            model, feeds, path, dynamo=True, dynamic_shapes=shapes, external_data=False, **names
        )
    else:
        axes = {"ids": {0: "batch"}, "attention_mask": {0: "batch"}, "hidden": {0: "batch"}}
        torch.onnx.export(
            model, feeds, path, dynamo=False, dynamic_axes=axes, opset_version=17, **names
        )
    return path


def bert(arguments: argparse.Namespace) -> None:
    """Export, compile, and count what was found."""
    with tempfile.TemporaryDirectory() as folder:
        for dynamo in (False, True):
            path = export_bert(Path(folder), arguments.layers, dynamo=dynamo)
            before = operators(path)
            done = compiled(path, Path(folder) / "out")
            after = operators(Path(folder) / "out" / "model.onnx")
            megabytes = path.stat().st_size / 2**20
            emit(
                exporter="dynamo" if dynamo else "torchscript",
                nodes=[sum(before.values()), sum(after.values())],
                share=round(sum(after.values()) / sum(before.values()), 3),
                found={k: after[k] for k in ("LayerNormalization", "Gelu", "Split", "Softmax")},
                rewrites=rewrites(done["report"]),
                passes_s=stage_seconds(done["report"]),
                peak_mib=done["report"]["resources"]["peak_mib"],
                peak_limit_mib=round(1.5 * megabytes + 600),
                operators=dict(after),
            )


# ---- scale


def chain_of_blocks(nodes: int) -> ir.Model:
    """Return residual blocks of about `nodes` nodes: products, biases, norms, activations."""
    rng = np.random.default_rng(0)
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 21}, name="scale")
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["batch", 16]))
    graph.inputs.append(x)

    def constant(name: str, array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(array.astype(np.float32), name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
        value.const_value = tensor
        graph.register_initializer(value)
        return value

    def node(op_type: str, *inputs: ir.Value) -> ir.Value:
        made = ir.Node("", op_type, inputs, name=f"{op_type}{len(graph)}")
        made.outputs[0].name = f"v{len(graph)}"
        graph.append(made)
        return made.outputs[0]

    two, root, half, one = (
        constant(f"c{k}", np.array(v)) for k, v in enumerate((2, 2**0.5, 0.5, 1))
    )
    block = 0
    while len(graph) < nodes:
        w, b = (
            constant(f"w{block}", rng.normal(size=(16, 16)) / 8),
            constant(f"b{block}", rng.normal(size=16)),
        )
        y = node("Add", node("MatMul", x, w), b)
        gate = node(
            "Mul", node("Mul", y, half), node("Add", node("Erf", node("Div", y, root)), one)
        )
        x = node("Div", node("Add", x, node("Identity", gate)), two)
        block += 1
    x.type, x.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["batch", 16])
    graph.outputs.append(x)
    return ir.Model(graph, ir_version=10)


def scale(arguments: argparse.Namespace) -> None:
    """Compile chains of growing length."""
    with tempfile.TemporaryDirectory() as folder:
        for count in arguments.nodes:
            path = Path(folder) / f"scale{count}.onnx"
            ir.save(chain_of_blocks(count), path)
            done = compiled(path, Path(folder) / "out")
            after = operators(Path(folder) / "out" / "model.onnx")
            emit(
                nodes=[count, sum(after.values())],
                passes_s=stage_seconds(done["report"]),
                wall_s=done["wall_s"],
                peak_mib=done["report"]["resources"]["peak_mib"],
            )


# ---- real models


def slimmed(path: Path, out: Path) -> Path | None:
    """Run onnxslim, where it is installed."""
    try:
        import onnxslim
    except ImportError:
        return None
    onnx.save(onnxslim.slim(onnx.load(path)), out)
    return out


def ort_optimized(path: Path, out: Path) -> Path | None:
    """Run ONNX Runtime's transformer optimizer, its graph optimizations at level 1 first."""
    from onnxruntime.transformers import optimizer

    try:
        made = optimizer.optimize_model(str(path), model_type="bert", opt_level=1, use_gpu=False)
    except Exception as error:  # it fails on models of other families
        print(f"{path.name}: {type(error).__name__}", file=sys.stderr)
        return None
    made.save_model_to_file(str(out))
    return out


def session(path: Path) -> ort.InferenceSession:
    """Open a model with one thread and all optimizations of the runtime."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds_for(one: ort.InferenceSession) -> dict[str, np.ndarray]:
    """Draw inputs; open dims get 1, or 128 where they are a sequence."""
    rng = np.random.default_rng(0)
    feeds = {}
    for spec in one.get_inputs():
        dims = [d if isinstance(d, int) else SYMBOLS.get(str(d), 1) for d in spec.shape]
        kind = spec.type.removeprefix("tensor(").removesuffix(")")
        if kind.startswith("float"):
            feeds[spec.name] = rng.standard_normal(dims).astype(np.float32)
        else:
            feeds[spec.name] = np.ones(dims, np.dtype(kind.replace("bool", "bool_")))
    return feeds


def interleaved(run: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time each in turn."""
    times: dict[str, list[float]] = {name: [] for name in run}
    for one in run.values():
        one()
    for _ in range(rounds):
        for name, one in run.items():
            began = time.perf_counter()
            one()
            times[name].append(time.perf_counter() - began)
    return times


def candidates(path: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the model as it is, and as each tool leaves it."""
    yield "original", path
    compiled(path, folder / "out")
    yield "optcc", folder / "out" / "model.onnx"
    for name, tool in (("onnxslim", slimmed), ("ort", ort_optimized)):
        made = tool(path, folder / f"{name}.onnx")
        if made is not None:
            yield name, made


def models(arguments: argparse.Namespace) -> None:
    """Compare node counts and latency."""
    for path in sorted(arguments.folder.rglob("*.onnx")):
        with tempfile.TemporaryDirectory() as folder:
            files = dict(candidates(path, Path(folder)))
            opened = {name: session(file) for name, file in files.items()}
            feeds = feeds_for(opened["original"])
            run = {n: (lambda s=s, f=feeds: s.run(None, f)) for n, s in opened.items()}
            times = interleaved(run, arguments.rounds)
            base = times["original"]
            ratios = {
                n: round(statistics.median(a / b for a, b in zip(t, base, strict=True)), 3)
                for n, t in times.items()
            }
            nodes = {n: sum(operators(f).values()) for n, f in files.items()}
            emit(model=path.name, nodes=nodes, latency_ratio=ratios)


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("bert")
    one.add_argument("--layers", type=int, default=12)
    one.set_defaults(run=bert)
    one = commands.add_parser("scale")
    one.add_argument("--nodes", type=int, nargs="*", default=[1000, 3000, 10_000, 30_000])
    one.set_defaults(run=scale)
    one = commands.add_parser("models")
    one.add_argument("folder", type=Path)
    one.add_argument("--rounds", type=int, default=200)
    one.set_defaults(run=models)
    arguments = parser.parse_args()
    arguments.run(arguments)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    emit(children_peak_mib=round(peak))


if __name__ == "__main__":
    main()
