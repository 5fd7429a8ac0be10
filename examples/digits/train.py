"""Train the digits example and write its model and data.

    pip install 'optcc-compiler[torch]' scikit-learn onnxscript
    python examples/digits/train.py

The data are the 1797 images of scikit-learn's `load_digits`: 8 x 8 pixels, values 0..16. Training
and evaluation share no image; the calibration samples are training images without their labels.
Everything is seeded, so a second run with the same PyTorch version on the same kind of CPU writes
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch
from onnxscript.optimizer import fold_constants, remove_unused_nodes
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
CALIBRATION = HERE.parent.parent / "calibration_data"
SEED = 2024
EVALUATION_SAMPLES = 797
CALIBRATION_SAMPLES = 256
EPOCHS = 60
BATCH = 50


class ConvNorm(nn.Module):
    """Convolution without a bias, then batch normalization."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the convolution of x: [batch, inputs, height, width]."""
        return self.norm(self.conv(x))


class Residual(nn.Module):
    """Two ConvNorm around a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = ConvNorm(channels, channels)
        self.second = ConvNorm(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add two layers to x: [batch, channels, height, width]."""
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class Digits(nn.Module):
    """Scores of ten digits for x: [batch, 1, 8, 8], pixel values 0..16."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(1, 32)
        self.narrow = Residual(32)
        self.down = ConvNorm(32, 64, stride=2)
        self.wide = Residual(64)
        self.score = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return unnormalized scores: [batch, 10]."""
        x = self.narrow(functional.relu(self.stem(x / 16.0)))
        x = self.wide(functional.relu(self.down(x)))
        return self.score(x.mean(dim=(2, 3)))


def split() -> dict[str, np.ndarray]:
    """Return the images and labels of training and evaluation, shuffled once."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    x = images.astype(np.float32).reshape(-1, 1, 8, 8)[order]
    y = labels.astype(np.int64)[order]
    cut = len(x) - EVALUATION_SAMPLES
    return {"train_x": x[:cut], "train_y": y[:cut], "eval_x": x[cut:], "eval_y": y[cut:]}


def shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move each image by up to one pixel in both directions; the border is empty."""
    padded = functional.pad(x, (1, 1, 1, 1))
    offsets = torch.randint(0, 3, (len(x), 2), generator=generator).tolist()
    moves = zip(padded, offsets, strict=True)
    return torch.stack([image[:, i : i + 8, j : j + 8] for image, (i, j) in moves])


def train(x: np.ndarray, y: np.ndarray) -> Digits:
    """Fit a network to x: [samples, 1, 8, 8] and y: [samples]."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(SEED)
    model, images, labels = Digits(), torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.02)
    steps = EPOCHS * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            optimizer.zero_grad()
            scores = model(shifted(images[rows], generator))
            functional.cross_entropy(scores, labels[rows], label_smoothing=0.05).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def export(model: Digits, path: Path) -> None:
    """Write `model` as ONNX: batch dynamic, BatchNormalization kept as its own node.

    The exporter's own optimizer would fold the normalization; folding constants alone does not.
    """
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        dynamo=True,
        optimize=False,
        opset_version=20,
        input_names=["x"],
        output_names=["scores"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=1024)},),
        verbose=False,
    )
    fold_constants(program.model)
    remove_unused_nodes(program.model)
    without_metadata(program.model)
    ir.save(program.model, path)


def without_metadata(model: ir.Model) -> None:
    """Drop what the exporter notes about the machine: source paths and stack traces."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.graph.name = "digits"
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph:
        node.metadata_props.clear()
        node.doc_string = None
        values.extend(node.outputs)
    for value in values:
        value.metadata_props.clear()
        value.doc_string = None


def write_data(parts: dict[str, np.ndarray]) -> None:
    """Write the calibration samples, the evaluation samples and the manifest of both."""
    calibration, evaluation = CALIBRATION / "digits.npz", HERE / "eval.npz"
    np.savez_compressed(calibration, x=parts["train_x"][:CALIBRATION_SAMPLES])
    np.savez_compressed(evaluation, x=parts["eval_x"], labels=parts["eval_y"])
    entry = {
        "source": "sklearn.datasets.load_digits: Optical Recognition of Handwritten Digits (UCI)",
        "licence": "CC BY 4.0 (E. Alpaydin, C. Kaynak, 1998, doi 10.24432/C50P49)",
        "part": f"training images 0..{CALIBRATION_SAMPLES - 1} after the shuffle, no labels",
        "samples": CALIBRATION_SAMPLES,
        "sha256": hashlib.sha256(calibration.read_bytes()).hexdigest(),
    }
    text = json.dumps({"digits.npz": entry}, indent=2, sort_keys=True)
    (CALIBRATION / "manifest.json").write_text(text + "\n")


def main() -> None:
    """Train, export, write the data and print the accuracy on the evaluation images."""
    parts = split()
    model = train(parts["train_x"], parts["train_y"])
    export(model, HERE / "digits.onnx")
    write_data(parts)
    with torch.no_grad():
        guess = model(torch.from_numpy(parts["eval_x"])).argmax(1).numpy()
    print(f"top-1 on {len(guess)} evaluation images: {(guess == parts['eval_y']).mean():.4f}")


if __name__ == "__main__":
    main()
