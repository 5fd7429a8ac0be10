"""Attention as torch exports it: every projection merged, every core found, with both exporters."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.config.request import VerifyMode
from optcc.config.shapes import profile_for
from optcc.graph.signature import signature_of
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.outcome import PassOutcome
from optcc.pipeline.plan import load_plan
from optcc.pipeline.registry import discover_passes
from optcc.pipeline.runner import Runner

torch = pytest.importorskip("torch")

EXPORTERS = [
    "torchscript",
    pytest.param(
        "dynamo",
        marks=pytest.mark.skipif(find_spec("onnxscript") is None, reason="needs onnxscript"),
    ),
]
WIDTH, HEADS, LENGTH = 32, 4, 6


class Heads(torch.nn.Module):
    """Projections of one value, F.scaled_dot_product_attention or the softmax written out."""

    def __init__(self, groups: int = HEADS, *, written: bool = False, **options: object) -> None:
        super().__init__()
        part = WIDTH // HEADS
        self.groups, self.part, self.written, self.options = groups, part, written, options
        self.q = torch.nn.Linear(WIDTH, WIDTH)
        self.k = torch.nn.Linear(WIDTH, groups * part, bias=False)
        self.v = torch.nn.Linear(WIDTH, groups * part)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask=None):
        q, k, v = (self._heads(p(x)) for p in (self.q, self.k, self.v))
        if self.written:
            scores = q @ k.transpose(-1, -2) / self.part**0.5
            y = torch.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1) @ v
        else:
            attend = torch.nn.functional.scaled_dot_product_attention
            y = attend(q, k, v, attn_mask=mask, **self.options)
        return self.out(y.transpose(1, 2).reshape(*x.shape))

    def _heads(self, y):
        batch, length, width = y.shape
        heads = width // self.part
        y = y.view(batch, length, heads, self.part).transpose(1, 2)
        if heads == HEADS:
            return y
        wide = y[:, :, None].expand(batch, heads, HEADS // heads, length, self.part)
        return wide.reshape(batch, HEADS, length, self.part)


class Packed(torch.nn.Module):
    """torch.nn.MultiheadAttention: its projections are one already."""

    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.weights = weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.weights)[0]


class Chain(torch.nn.Module):
    """All of them one behind the other, so that no two read the same value."""

    def __init__(self) -> None:
        super().__init__()
        parts = {
            "plain": Heads(),
            "causal": Heads(is_causal=True),
            "grouped": Heads(2),
            "single": Heads(1),
            "chosen": Heads(),
            "added": Heads(),
            "written": Heads(written=True),
            "packed": Packed(weights=False),
            "weights": Packed(weights=True),
        }
        self.parts = torch.nn.ModuleDict(parts)

    def forward(self, x, mask):
        masks = {"chosen": mask > 0, "added": mask, "written": mask}
        for name, part in self.parts.items():
            x = torch.tanh(x + (part(x, masks[name]) if name in masks else part(x)))
        return x


def _exported(path: Path, exporter: str, module, inputs) -> ir.Model:
    file = str(path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            options = {"dynamo": True, "verbose": False, "external_data": False}
        else:
            options = {"dynamo": False, "opset_version": 17}
        torch.onnx.export(module.eval(), inputs, file, **options)
    return ir.load(file)


def _simplified(model: ir.Model) -> dict[str, PassOutcome]:
    signature = signature_of(model)
    ctx = RunnerContext(signature=signature, profile=profile_for(signature, None, None))
    runner = Runner(registry=discover_passes(), verify=VerifyMode.EACH)
    outcomes: list[PassOutcome] = []
    for stage in load_plan("fp32").stages:
        outcomes = runner.run_stage(model, stage, ctx)
    return {o.name: o for o in outcomes}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_all_are_found(exporter: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(2, LENGTH, WIDTH), torch.rand(2, 1, LENGTH, LENGTH)
    module = Chain()
    model = _exported(tmp_path, exporter, module, inputs)
    outcomes = _simplified(model)
    assert len(outcomes["fuse.qkv"].rewrites) == 7
    cores = [r.reason for r in outcomes["fuse.attention"].rejects]
    assert [r for r in cores if r.endswith("is in the normal form already")] == cores
    assert len(cores) == len(module.parts)
    assert sum("grouped heads" in r for r in cores) == 2
