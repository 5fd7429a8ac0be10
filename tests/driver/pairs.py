"""Models in two variants, as files, for tests that compare them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optcc.artifacts.manifest import build_manifest, file_sha256
from optcc.graph.io import read_model, write_model

CHAIN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 8] x) => (float[N, 8] scores)
<float[8, 8] w1 = {%s}, float[8, 8] w2 = {%s}, float[8, 8] w3 = {%s}> {
  [first] a = MatMul(x, w1)
  [act] b = Tanh(a)
  [second] c = MatMul(b, w2)
  [keep] d = Identity(c)
  [bend] e = Tanh(d)
  [third] f = MatMul(e, w3)
  [last] scores = Identity(f)
}
"""


def chain(folder: Path, name: str = "a.onnx", batch: str = "N") -> Path:
    """x -> three MatMuls with Tanh and Identity between -> scores."""
    rng = np.random.default_rng(0)
    numbers = [", ".join(f"{v:.5f}" for v in rng.standard_normal(64)) for _ in range(3)]
    text = (CHAIN % tuple(numbers)).replace("[N,", f"[{batch},")
    write_model(ir.from_onnx_text(text), folder / name)
    return folder / name


def edited(path: Path, name: str, *, weight: str, factor: float) -> Path:
    """A copy of the model with one number of one weight changed."""
    model = read_model(path)
    value = model.graph.initializers[weight]
    array = value.const_value.numpy().copy()
    at = np.unravel_index(np.abs(array).argmax(), array.shape)
    array[at] *= factor
    value.const_value = ir.tensor(array, name=weight)
    write_model(model, path.with_name(name))
    return path.with_name(name)


def renamed(path: Path, name: str) -> Path:
    """A copy of the model with other names of nodes and inner values."""
    model = read_model(path)
    for node in model.graph:
        node.name = f"other_{node.name}"
        for value in node.outputs:
            if not value.is_graph_output():
                value.name = f"other_{value.name}"
    write_model(model, path.with_name(name))
    return path.with_name(name)


def from_text(folder: Path, name: str, body: str) -> Path:
    write_model(
        ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> {body}'), folder / name
    )
    return folder / name


def rehash(folder: Path) -> None:
    """Make manifest and report fit the files again, as one who tampers carefully would."""
    old = json.loads((folder / "manifest.json").read_text())
    keys = ("input", "options", "versions", "seeds")
    data = build_manifest(folder, **{k: old[k] for k in keys})
    (folder / "manifest.json").write_bytes(data)
    report = json.loads((folder / "report.json").read_text())
    report["manifest_sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "report.json").write_text(json.dumps(report))


def output_folder(folder: Path, original: Path, model: ir.Model, **options: object) -> Path:
    """A folder with a manifest like ours that says that `model` was made from `original`."""
    folder.mkdir()
    write_model(model, folder / "model.onnx")
    facts = {"name": original.name, "sha256": file_sha256(original), "bytes": 0}
    chosen = {"precision": "fp32", "cpu_class": "vnni", "shapes": None} | options
    data = build_manifest(folder, input=facts, options=chosen, versions={}, seeds={"seed": 0})
    (folder / "manifest.json").write_bytes(data)
    return folder
