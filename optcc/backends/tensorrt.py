"""TensorRT for data-centre GPUs and Jetson: builds on the GPU that the engine will run on."""

from __future__ import annotations

from dataclasses import replace

from optcc.backends.contract import Availability, BuildOutcome
from optcc.backends.device import find_cuda_device
from optcc.backends.trt_backend import TrtBackend

__all__ = ["Tensorrt"]


class Tensorrt(TrtBackend):
    """The same code path as TensorRT-RTX; needs an NVIDIA GPU to build."""

    def __init__(self) -> None:
        super().__init__(
            name="tensorrt",
            distributions=("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
            install_hint=(
                "on a machine with an NVIDIA GPU: pip install 'optcc-compiler[tensorrt]', then "
                "optcc compile model.onnx --backend tensorrt"
            ),
        )

    def availability(self) -> Availability:
        """Say whether the module and a GPU are there."""
        found = super().availability()
        if found.ok and find_cuda_device() is None:
            return replace(
                found,
                ok=False,
                reason="tensorrt builds on an NVIDIA GPU, and there is none here",
                hint="build model.onnx on the machine that will run it, with --backend tensorrt",
            )
        return found

    def runs_on(self, outcome: BuildOutcome) -> str:
        """Say where the engine runs."""
        device = find_cuda_device()
        where = f"{device.name} ({device.target})" if device else "the GPU model it was built on"
        return f"{where} with TensorRT {outcome.version}"
