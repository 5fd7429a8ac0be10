"""Which samples give the ranges, which judge the result, and what shapes they imply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optcc.calibrate.dataset import (
    DataFinding,
    Dataset,
    find_by_convention,
    open_source,
    overlap,
    split,
)
from optcc.config.request import CompileRequest, Precision
from optcc.config.shapes import ShapeProfile, profile_for
from optcc.errors import ConfigError
from optcc.frontends.onnx_file import LoadedModel
from optcc.graph.signature import Signature, TensorSpec
from optcc.progress import Progress

__all__ = ["HELD_BACK", "Data", "assumed_profile", "choose_precision", "gather_data", "profile_of"]

HELD_BACK = 0.2
"""Share of the calibration samples that judges the result where there are no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Samples by their use.

    Attributes:
        precision: What was asked for, or what the data allows.
        ranges: Samples that ranges are taken from; None without calibration.
        held_back: Calibration samples set aside; never used for ranges.
        evaluation: Samples that the artifacts are judged on; None when there are none.
        profile: Shapes that artifacts are built for.
        calib: Text of the calibration source, given or found by convention.
        source: What the calibration samples are called in the report.
        findings: What is doubtful about the samples.
    """

    precision: Precision
    ranges: Dataset | None
    held_back: Dataset | None
    evaluation: Dataset | None
    profile: ShapeProfile
    calib: str | None
    source: str
    findings: tuple[DataFinding, ...]


def choose_precision(request: CompileRequest, progress: Progress) -> tuple[Precision, str | None]:
    """Return the precision and the text of the calibration source, if there is one.

    Raises:
        ConfigError: INT8 was asked for and there is no calibration data.
    """
    found, places = find_by_convention(request.model, Path.cwd())
    calib = request.calib or (str(found) if found is not None else None)
    if request.precision is Precision.INT8 and calib is None and request.ranges is None:
        raise _no_calibration(request.model, places)
    if request.precision is not None:
        wanted = request.precision is Precision.INT8
        return request.precision, calib if wanted or request.calib is not None else None
    if calib is not None or request.ranges is not None:
        return Precision.INT8, calib
    progress.warn(
        f"no calibration data found for {request.model.name}: building fp16; "
        "give --calib PATH for int8"
    )
    return Precision.FP16, None


def _no_calibration(model: Path, places: Sequence[Path]) -> ConfigError:
    looked = ", ".join(str(p) for p in places)
    return ConfigError(
        f"precision 'int8' needs calibration data ({model.name}); looked for {looked}",
        hint="add --calib PATH, or --calib random to go on with an unverified result",
    )


def gather_data(
    request: CompileRequest,
    loaded: LoadedModel,
    precision: Precision,
    calib: str | None,
    *,
    sizes_matter: bool,
) -> Data:
    """Open, check and split the samples, and decide the shapes to build for.

    Args:
        request: Names the sources.
        loaded: The model that the samples must fit.
        precision: As chosen.
        calib: Text of the calibration source, or None.
        sizes_matter: Whether a backend builds for these very shapes; else sizes that nothing
            tells are assumed, for the checks alone.

    Raises:
        ConfigError: Data is missing or does not fit the model, or a free dim has no source.
    """
    search = (request.model.parent,)
    evaluation = None
    if request.evaluation is not None:
        evaluation = open_source(
            request.evaluation, signature=loaded.signature, kind="eval", search=search
        )
    whole = None
    if calib is not None and calib != "random":
        whole = open_source(calib, signature=loaded.signature, kind="calib", search=search)
    given = [d for d in (whole, evaluation) if d is not None]
    profile = _profile(request, loaded, given, sizes_matter)
    if calib == "random":
        whole = open_source(
            calib, signature=loaded.signature, kind="calib", profile=profile, seed=request.seed
        )
    ranges, held_back = (whole, None) if whole is None else split(whole, HELD_BACK)
    if evaluation is not None and whole is not None and not whole.random:
        ranges, held_back = whole, None
    return Data(
        precision=precision,
        ranges=ranges,
        held_back=held_back,
        evaluation=evaluation or held_back,
        profile=profile,
        calib=calib,
        source=whole.source if whole is not None else "",
        findings=_findings(whole, evaluation),
    )


def _profile(
    request: CompileRequest,
    loaded: LoadedModel,
    given: Sequence[Dataset],
    sizes_matter: bool,
) -> ShapeProfile:
    try:
        return profile_for(loaded.signature, request.shapes, _observed(given))
    except ConfigError:
        if sizes_matter or request.shapes is not None or given:
            raise
    return assumed_profile(loaded.signature)


def assumed_profile(signature: Signature) -> ShapeProfile:
    """Return plausible sizes, for checks alone, where nothing tells them."""
    assumed = {s.name: assumed_shapes(s) for s in signature.inputs}
    return ShapeProfile(profile_for(signature, None, assumed).inputs, "assumed")


def profile_of(signature: Signature, shapes: str | None = None) -> ShapeProfile:
    """Return sizes to check a model with, without samples.

    Raises:
        ConfigError: `shapes` contradicts the model or says too little.
    """
    try:
        return profile_for(signature, shapes)
    except ConfigError:
        if shapes is not None:
            raise
    return assumed_profile(signature)


def assumed_shapes(spec: TensorSpec) -> list[tuple[int, ...]]:
    """Return two plausible shapes of an input whose sizes nothing tells.

    Pictures (rank 4) get sizes that five halvings divide; sequences get short ones.
    """
    dims = spec.dims if spec.dims is not None else (None, None)
    guesses = (64, 96) if len(dims) == 4 else (6, 10)
    return [
        tuple(d if isinstance(d, int) else (1 + k if i == 0 else g) for i, d in enumerate(dims))
        for k, g in enumerate(guesses)
    ]


def _observed(datasets: Sequence[Dataset]) -> dict[str, list[tuple[int, ...]]]:
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for dataset in datasets:
        for name, seen in dataset.shapes.items():
            shapes.setdefault(name, []).extend(seen)
    return shapes


def _findings(calib: Dataset | None, evaluation: Dataset | None) -> tuple[DataFinding, ...]:
    found = [*(calib.findings if calib else ()), *(evaluation.findings if evaluation else ())]
    if calib is not None and evaluation is not None and (shared := overlap(evaluation, calib)):
        found.append(
            DataFinding(
                "eval-in-calib",
                f"{shared} evaluation samples are also calibration samples: "
                "the accuracy figures are not of unseen data",
                "warning",
            )
        )
    return tuple(found)
