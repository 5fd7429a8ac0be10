"""What models are run on when they are compared: given samples, else seeded inputs."""

from __future__ import annotations

from typing import Literal

from optcc.calibrate.dataset import Dataset, from_feeds, open_source, split
from optcc.config.shapes import ShapeProfile
from optcc.driver.data import HELD_BACK
from optcc.errors import BackendError, ConfigError, UnsupportedModelError
from optcc.frontends.onnx_file import LoadedModel
from optcc.graph.signature import Signature
from optcc.passkit.contract import Feed
from optcc.runtime.session import Session
from optcc.verify.observe import Observations
from optcc.verify.probes import make_probes

__all__ = [
    "InputKind",
    "find_inputs",
    "given_inputs",
    "observe_outputs",
    "recorded_inputs",
    "seeded_inputs",
]

_MOST_SAMPLES = 256
_PAIRS = 4
_SEEDED = "seeded inputs"
_KEPT_BYTES = 512 << 20

InputKind = Literal["recorded", "given", "seeded", "out of range"]
"""Those that the report's figures come from, those of a person, made-up ones, and either of the
last two where they leave the calibrated ranges."""


def find_inputs(
    loaded: LoadedModel, signature: Signature, profile: ShapeProfile, inputs: str | None, seed: int
) -> Dataset:
    """Open `inputs`, or make some up.

    Args:
        loaded: That must run on them.
        signature: That they must fit; may fix more sizes than that of `loaded`.
        profile: Sizes of seeded inputs.
        inputs: As for `--calib`; at most 256 samples are used, spread evenly.
        seed: Of seeded inputs.

    Raises:
        ConfigError: `inputs` cannot be used, or none can be made up.
        UnsupportedModelError: The runtime cannot open the model.
    """
    if inputs is not None:
        return given_inputs(signature, profile, inputs, seed)
    found = seeded_inputs(loaded, signature, profile, seed)
    if found is None:
        raise ConfigError(
            f"{loaded.name} runs on no inputs that could be made up",
            hint="give --inputs FILE, or other --shapes",
        )
    return found


def given_inputs(signature: Signature, profile: ShapeProfile, text: str, seed: int = 0) -> Dataset:
    """Open samples that a person gives.

    Raises:
        ConfigError: They do not exist or do not fit.
    """
    opened = open_source(text, signature=signature, kind="inputs", profile=profile, seed=seed)
    return opened.thinned(_MOST_SAMPLES)


def recorded_inputs(signature: Signature, kind: Literal["calib", "eval"], text: str) -> Dataset:
    """Open the samples that a compile judged by: of calibration samples those it held back.

    Raises:
        ConfigError: They do not fit.
    """
    opened = open_source(text, signature=signature, kind=kind)
    if kind == "calib":
        opened = split(opened, HELD_BACK)[1] or opened
    return opened.thinned(_MOST_SAMPLES)


def seeded_inputs(
    loaded: LoadedModel, signature: Signature, profile: ShapeProfile, seed: int
) -> Dataset | None:
    """Make a few feeds that the model runs on; None when there are none.

    Raises:
        UnsupportedModelError: The runtime cannot open the model.
    """
    feeds = []
    try:
        for k in range(_PAIRS):
            feeds += make_probes(loaded.model, signature, profile, (), seed + 2 * k)
    except BackendError as error:
        raise UnsupportedModelError(
            f"ONNX Runtime cannot run {loaded.name}: {error.what}", where=loaded.name
        ) from error
    return from_feeds(feeds, signature, _SEEDED) if feeds else None


def observe_outputs(session: Session, data: Dataset) -> Observations:
    """Run on feed after feed and keep all, as long as they take no more than half a GiB.

    Two feeds are kept whatever they take: one alone cannot show that the outputs depend on it.

    Raises:
        BackendError: The runtime fails on a feed.
    """
    feeds: list[Feed] = []
    outputs: list[Feed] = []
    size = 0
    for feed in data:
        feeds.append(feed)
        outputs.append(session.run(feed))
        size += sum(getattr(a, "nbytes", 0) for f in (feed, outputs[-1]) for a in f.values())
        if size > _KEPT_BYTES and len(feeds) > 1:
            break
    return Observations(tuple(feeds), tuple(outputs))
