"""What PyTorch exports of an encoder layer: all normalizations and activations are found."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import onnx_ir as ir
import pytest

from optcc.graph.shapes import infer_shapes
from optcc.passkit.testing import bare_context
from passes.canonicalize.constants import CanonicalizeConstants
from passes.canonicalize.opset import CanonicalizeOpset
from passes.eliminate.identity import EliminateIdentity
from passes.fold.constants import FoldConstants
from passes.fuse.gelu import FuseGelu
from passes.fuse.layernorm import FuseLayerNorm
from passes.fuse.rmsnorm import FuseRmsNorm
from tests.passes.promise import feed, keeps, ops

torch = pytest.importorskip("torch")


class Encoder(torch.nn.Module):
    """A layer with its normalizations first and Gelu, and a normalization behind it."""

    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.first, self.second, self.last = (torch.nn.LayerNorm(16) for _ in range(3))
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.gelu = torch.nn.GELU(approximate=approximate)

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.last(x + self.down(self.gelu(self.up(self.second(x)))))


class RmsBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(16) + 0.5)
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.linear(self.weight * y)


def _exported(module, path: Path, opset: int, *, dynamo: bool) -> ir.Model:
    if dynamo and find_spec("onnxscript") is None:
        pytest.skip("the newer exporter needs onnxscript")
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.train(False),
            (torch.randn(2, 5, 16),),
            str(path),
            opset_version=opset,
            dynamo=dynamo,
            external_data=False,
            input_names=["x"],
            output_names=["y"],
        )
    model = ir.load(path)
    for one in (CanonicalizeOpset(), CanonicalizeConstants(), FoldConstants(), EliminateIdentity()):
        one.run(model, bare_context())
    infer_shapes(model)
    return model


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("opset", [14, 17, 20])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_encoder(tmp_path: Path, approximate: str, opset: int, dynamo: bool) -> None:
    module = Encoder(approximate)
    model = _exported(module, tmp_path / "encoder.onnx", opset, dynamo=dynamo)
    feeds = [feed(model, seed=k) for k in (0, 1)]
    for one, op_type in ((FuseLayerNorm(), "LayerNormalization"), (FuseGelu(), "Gelu")):
        if op_type not in ops(model):
            keeps(one, model, feeds)
    assert ops(model).count("LayerNormalization") == 3
    assert ops(model).count("Gelu") == 1
    assert not {"Erf", "Tanh", "ReduceMean"} & set(ops(model))


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_rms_block(tmp_path: Path, dynamo: bool) -> None:
    model = _exported(RmsBlock(), tmp_path / "rms.onnx", 18, dynamo=dynamo)
    keeps(FuseRmsNorm(), model, [feed(model)])
    assert ops(model)[:6] == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
