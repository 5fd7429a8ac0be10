"""TensorRT-RTX: engines for RTX GPUs, built on any x86-64 machine."""

from __future__ import annotations

from optcc.backends.contract import BuildOutcome
from optcc.backends.trt_backend import TrtBackend

__all__ = ["TensorrtRtx"]


class TensorrtRtx(TrtBackend):
    """Needs no GPU to build; the user's GPU finishes the kernels when the engine is loaded."""

    def __init__(self) -> None:
        super().__init__(
            name="tensorrt_rtx",
            distributions=("tensorrt-rtx", "tensorrt-rtx-cu13", "tensorrt-rtx-cu12"),
            install_hint=(
                "pip install 'tensorrt-rtx>=1.7.1,<1.8' (Linux x86-64 and Windows), or leave this "
                "backend out: --backend onnxruntime"
            ),
        )

    def runs_on(self, outcome: BuildOutcome) -> str:
        """Say where the engine runs, and where it does not."""
        return (
            f"NVIDIA GPUs {', '.join(outcome.targets)} with the TensorRT-RTX {outcome.version} "
            "runtime; not on H100, Jetson, in trtexec or in Triton"
        )
