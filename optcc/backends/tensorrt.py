"""TensorRT for data-centre GPUs and Jetson: builds on the GPU that the engine will run on."""

from __future__ import annotations

from dataclasses import replace

from optcc.backends.contract import Availability, BuildJob, BuildOutcome
from optcc.backends.device import find_cuda_device
from optcc.backends.trt_backend import TrtBackend
from optcc.errors import ConfigError

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

    def targets(self, job: BuildJob) -> tuple[str, ...]:
        """Return the GPU of this machine: no other can be built for.

        Raises:
            ConfigError: The job asks for another one.
        """
        device = find_cuda_device()
        asked = super().targets(job)
        if device is None:
            return asked
        if asked and asked != (device.target,):
            raise ConfigError(
                f"tensorrt builds for the GPU of this machine, {device.target}, "
                f"not for {', '.join(asked)}",
                hint="leave --target out, or build on such a machine",
            )
        return (device.target,)

    def runs_on(self, outcome: BuildOutcome) -> str:
        """Say where the engine runs."""
        device = find_cuda_device()
        where = f"{device.name} ({device.target})" if device else "the GPU model it was built on"
        return f"{where} with TensorRT {outcome.version}"
