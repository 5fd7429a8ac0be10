"""Find again what an output folder was made from, and choose what its models are run on.

A file is what the manifest records only if both name and sha256 are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from optcc.artifacts.manifest import describe_source, file_sha256
from optcc.calibrate.dataset import Dataset, from_feeds
from optcc.calibrate.ranges import load_all_ranges
from optcc.driver.data import profile_of
from optcc.driver.fitted_inputs import MOST_CLIPPED, clipped_share, fit_inputs
from optcc.driver.inputs import InputKind, given_inputs, recorded_inputs, seeded_inputs
from optcc.errors import ConfigError, OptccError
from optcc.frontends.onnx_file import LoadedModel, load
from optcc.passkit.qtypes import RangeTable

__all__ = ["choose_inputs", "find_original", "find_samples", "recorded_option"]

_LOOKED_AT = 2


def find_original(
    folder: Path, manifest: Mapping[str, Any], given: Path | None
) -> LoadedModel | None:
    """Load the original.

    Args:
        folder: OUT.
        manifest: Of OUT.
        given: Where the original is; else it is looked for beside OUT and in the working folder.

    Raises:
        ConfigError: `given` is not there, or is another model than the manifest records.
        UnsupportedModelError: `given` is malformed.
    """
    wanted = _table(manifest, "input")
    if given is not None:
        loaded = load(given)
        if loaded.sha256 != wanted.get("sha256"):
            raise ConfigError(
                f"{given} is not the model that {folder} was made from: its sha256 differs",
                hint=f"the manifest names {wanted.get('name')!r}; to compare any two models: "
                "optcc verify A B",
            )
        return loaded
    for path in _places(folder, wanted.get("name")):
        if path.is_file() and file_sha256(path) == wanted.get("sha256"):
            try:
                return load(path)
            except OptccError:  # its external data may be elsewhere
                return None
    return None


def find_samples(
    folder: Path, manifest: Mapping[str, Any]
) -> tuple[Literal["calib", "eval"], str] | None:
    """Find the samples that the figures of the report come from.

    Returns:
        The option that named them and their path; evaluation samples, else calibration samples.
        None when they are not here, or come from a callable, which is not called.
    """
    kinds: tuple[Literal["calib", "eval"], ...] = ("eval", "calib")
    for key in kinds:
        wanted = recorded_option(manifest, key)
        if wanted is not None and key == "eval" and not isinstance(wanted, dict):
            return None  # the figures are of samples that are not a file
        if not isinstance(wanted, dict):
            continue
        for path in _places(folder, wanted.get("name")):
            if path.exists() and describe_source(path) == wanted:
                return key, str(path)
    return None


def choose_inputs(
    folder: Path,
    manifest: Mapping[str, Any],
    reference: LoadedModel,
    inputs: str | None,
    shapes: str | None,
    seed: int,
) -> tuple[Dataset | None, InputKind]:
    """Take the given inputs, else the recorded samples, else seeded inputs within the ranges.

    Args:
        folder: OUT.
        manifest: Of OUT.
        reference: The original, or a model of OUT.
        inputs: As for `--calib`, or None.
        shapes: Sizes of dynamic inputs; else those that the manifest records.
        seed: Of seeded inputs.

    Returns:
        The inputs, None when none could be made up, and what kind they are.

    Raises:
        ConfigError: `inputs` or `shapes` do not fit.
    """
    recorded, signature = recorded_option(manifest, "shapes"), reference.signature
    profile = profile_of(signature, shapes or (recorded if isinstance(recorded, str) else None))
    if inputs is not None:
        data = given_inputs(signature, profile, inputs, seed)
        return data, "given" if _fits(folder, reference, data) else "out of range"
    found = find_samples(folder, manifest)
    if found is not None:
        return recorded_inputs(signature, *found), "recorded"
    try:
        made_up = seeded_inputs(reference, signature, profile, seed)
    except OptccError:
        return None, "seeded"
    if made_up is None or "ranges.json" not in manifest["files"]:
        return made_up, "seeded"
    return _within_ranges(folder, reference, made_up)


def _within_ranges(
    folder: Path, reference: LoadedModel, data: Dataset
) -> tuple[Dataset, InputKind]:
    table = _ranges(folder)
    feeds = None if table is None else fit_inputs(reference.model, list(data), table)
    if feeds is None:
        return data, "out of range"
    name = "seeded inputs within the calibrated ranges"
    return from_feeds(feeds, reference.signature, name), "seeded"


def _fits(folder: Path, reference: LoadedModel, data: Dataset) -> bool:
    table = _ranges(folder)
    first = list(islice(data, _LOOKED_AT))
    return table is None or clipped_share(reference.model, first, table) <= MOST_CLIPPED


def _ranges(folder: Path) -> RangeTable | None:
    try:
        return load_all_ranges(folder / "ranges.json")
    except ConfigError:  # there is none, or it is damaged, which its sha256 tells
        return None


def recorded_option(manifest: Mapping[str, Any], name: str) -> object:
    """Return an option as the manifest records it; None when it does not."""
    return _table(manifest, "options").get(name)


def _table(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = manifest.get(key)
    return found if isinstance(found, dict) else {}


def _places(folder: Path, name: object) -> Iterator[Path]:
    """Yield where a file of that base name may be; a name with folders in it is not ours."""
    if not isinstance(name, str) or not name or Path(name).name != name:
        return
    for place in (folder.resolve().parent, Path.cwd()):
        yield place / name
        yield place / "calibration_data" / name
