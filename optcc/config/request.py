"""What a user asks for, validated on construction. Pure data: no heavy import here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from optcc.config.preprocessing import Preprocessing
from optcc.config.selection import PassSelection
from optcc.errors import ConfigError

__all__ = ["Calibrator", "CompileRequest", "CpuClass", "Precision", "VerifyMode"]


class Precision(StrEnum):
    """Numeric format of the heavy layers."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


class CpuClass(StrEnum):
    """Which int8 kernels the ONNX Runtime artifact is meant for."""

    VNNI = "vnni"
    AVX2 = "avx2"


class VerifyMode(StrEnum):
    """When numbers are checked: after each rewrite, or after each stage only."""

    EACH = "each"
    STAGE = "stage"


class Calibrator(StrEnum):
    """How an activation range is chosen; AUTO takes the least output error per tensor."""

    AUTO = "auto"
    MINMAX = "minmax"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"
    MSE = "mse"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """Everything that `optcc compile` needs to know.

    Attributes:
        model: ONNX file.
        out: Output folder; None means `<model stem>.optcc` in the working folder.
        precision: None lets calibration data found by convention decide.
        calib: Path, `module:callable`, `random`, or None for the convention.
        evaluation: Path, `module:callable`, or None.
        metric: Name or `module:callable`; None chooses by the outputs and labels.
        backends: Names the user asked for; empty means the defaults.
        targets: Names of GPU targets; empty means the backend's defaults.
        shapes: The text of `--shapes`, or None.
        max_drop: Accuracy gate in points; None switches it off.
        data_root: Folder that external data may lie in besides the model's own.
        ranges: Path of a saved ranges.json, or None.
        passes: Changes to the preset's passes that options ask for.
        recipe: TOML file with further changes, or None.
        preprocessing: What is put in front of the model's input.
    """

    model: Path
    out: Path | None = None
    precision: Precision | None = None
    calib: str | None = None
    evaluation: str | None = None
    metric: str | None = None
    backends: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    shapes: str | None = None
    max_drop: float | None = 1.0
    cpu_class: CpuClass = CpuClass.VNNI
    calibrator: Calibrator = Calibrator.AUTO
    verify: VerifyMode = VerifyMode.EACH
    keep_going: bool = False
    strict: bool = False
    seed: int = 0
    force: bool = False
    data_root: Path | None = None
    ranges: Path | None = None
    passes: PassSelection = field(default_factory=PassSelection)
    recipe: Path | None = None
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def __post_init__(self) -> None:
        if self.max_drop is not None and not 0 <= self.max_drop <= 100:
            raise ConfigError(f"--max-drop is {self.max_drop}, it must be 0 to 100 or none")
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}, it must be 0 or more")

    @property
    def out_folder(self) -> Path:
        """Where the output goes."""
        return self.out if self.out is not None else Path(f"{self.model.stem}.optcc")
