"""Compare two models on the same inputs: outputs, inner values, and the rewrite to blame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from optcc.calibrate.dataset import Dataset
from optcc.driver.bisection import Pair, bisect, find_recipe
from optcc.driver.data import profile_of
from optcc.driver.inputs import find_inputs, observe_outputs
from optcc.driver.reproducer import check_free
from optcc.driver.work import MODEL
from optcc.errors import (
    BackendError,
    ConfigError,
    OptccError,
    UnsupportedModelError,
    VerificationError,
)
from optcc.frontends.onnx_file import LoadedModel, load
from optcc.graph.signature import joined, mismatches
from optcc.graph.walk import all_nodes
from optcc.measure.accuracy import OutputFigures, evaluate
from optcc.passkit.contract import Feed
from optcc.progress import Progress, Silent
from optcc.report.comparison import (
    Bisection,
    LayerRow,
    LayerTable,
    ModelComparison,
    OutputComparison,
)
from optcc.runtime.session import Session
from optcc.verify.allowance import Allowance, compare_outputs
from optcc.verify.cut import draws_random
from optcc.verify.layers import LayerError, compare_layers
from optcc.verify.numeric import Outcome, Verdict
from optcc.verify.observe import Observations
from optcc.verify.reference import open_model

__all__ = ["compare_models"]

_LAYER_FEEDS = 2
_LAYER_ROWS = 12


def compare_models(
    first: Path,
    second: Path,
    *,
    inputs: str | None = None,
    shapes: str | None = None,
    layers: bool = False,
    tolerance: float | None = None,
    reproducer: Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ModelComparison:
    """Run two models on the same inputs and say whether they give the same numbers.

    When `first` is the original that the output folder around `second` was made from, and they
    differ, the recorded pipeline is run again to find the rewrite after which they do.

    Args:
        first: The reference: a model, or an output folder for its model.onnx.
        second: What is compared with it, likewise.
        inputs: As for `--calib`; seeded inputs unless given.
        shapes: Sizes of dynamic inputs, as for `optcc compile`.
        layers: Compare inner values of the same name too.
        tolerance: Largest error over the largest magnitude; what rounding may do unless given.
        reproducer: New folder for the models before and after the rewrite to blame.
        seed: Of seeded inputs.
        progress: Receives what goes on.

    Raises:
        ConfigError: A file is missing, the models take or give different things, or an option is
            wrong.
        UnsupportedModelError: A model is malformed, or the runtime cannot run the first one.
        VerificationError: The second model does not run where the first one does.
    """
    _check_options(tolerance, reproducer)
    progress = progress or Silent()
    progress.stage("load")
    a, b = load(_file(first)), load(_file(second))
    _refuse_other_signature(a, b)
    signature = joined(a.signature, b.signature)
    data = find_inputs(a, signature, profile_of(signature, shapes), inputs, seed)
    progress.stage("compare")
    allowance = Allowance(tolerance)
    outputs, pair = _outputs(a, b, data, allowance, seed)
    equal = all(o.equal for o in outputs)
    return ModelComparison(
        first=a.name,
        second=b.name,
        inputs=data.source,
        samples=data.samples,
        allowance="rounding" if tolerance is None else f"{tolerance:g} of the largest magnitude",
        equal=equal,
        outputs=outputs,
        layers=_layers(a, b, pair, progress) if layers else None,
        bisection=None if equal else _blame(pair, reproducer, progress),
        notes=["there is nothing to reproduce"] if equal and reproducer is not None else [],
    )


def _check_options(tolerance: float | None, reproducer: Path | None) -> None:
    if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0):
        raise ConfigError(f"--tolerance is {tolerance:g}, it must be 0 or more")
    if reproducer is not None:
        check_free(reproducer)


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    if not (path / MODEL).is_file():
        raise ConfigError(
            f"{path} holds no {MODEL}", hint="give a model or the output folder of `optcc compile`"
        )
    return path / MODEL


def _refuse_other_signature(a: LoadedModel, b: LoadedModel) -> None:
    problems = mismatches(a.signature, b.signature)
    if problems:
        raise ConfigError(
            f"{a.name} and {b.name} cannot be compared: {'; '.join(problems)}",
            hint="both must have the same inputs and outputs by name, type and size",
        )


def _outputs(
    a: LoadedModel, b: LoadedModel, data: Dataset, allowance: Allowance, seed: int
) -> tuple[list[OutputComparison], Pair]:
    with ExitStack() as stack:
        one, two = _open(stack, a, None), _open(stack, b, a)
        seen = _observed(one, a, data)
        results = _run(two, a, b, seen.probes)
        figures = {o.name: o for o in evaluate(one, two, data).outputs}
    if any(draws_random(n) for m in (a, b) for n in all_nodes(m.model.graph)):
        text = "the model draws random numbers: nothing can be compared"
        verdicts = {n: Verdict(Outcome.BROKEN, reason=text) for n in seen.outputs[0]}
    else:
        verdicts = compare_outputs(a.model, seen, results, allowance, seed)
    rows = [_row(figures.get(s.name), s.name, verdicts) for s in a.signature.outputs]
    return rows, Pair(a, b, seen, allowance, seed)


def _open(stack: ExitStack, model: LoadedModel, reference: LoadedModel | None) -> Session:
    try:
        return stack.enter_context(open_model(model.model))
    except BackendError as error:
        raise _does_not_run(model, reference, error) from error


def _observed(session: Session, model: LoadedModel, data: Dataset) -> Observations:
    try:
        return observe_outputs(session, data)
    except BackendError as error:
        raise _does_not_run(model, None, error) from error


def _run(session: Session, a: LoadedModel, b: LoadedModel, feeds: Sequence[Feed]) -> list[Feed]:
    try:
        return [session.run(feed) for feed in feeds]
    except BackendError as error:
        raise _does_not_run(b, a, error) from error


def _does_not_run(
    model: LoadedModel, reference: LoadedModel | None, error: BackendError
) -> OptccError:
    """Without a reference it is the model that is at fault; with one it is a difference."""
    if reference is None:
        text = f"ONNX Runtime cannot run {model.name}: {error.what}"
        return UnsupportedModelError(text, where=model.name)
    return VerificationError(f"{model.name} does not run where {reference.name} does: {error.what}")


def _row(
    figures: OutputFigures | None, name: str, verdicts: dict[str, Verdict]
) -> OutputComparison:
    verdict = verdicts.get(name, Verdict(Outcome.OK, reason="not compared: it is no tensor"))
    return OutputComparison(
        name=name,
        max_abs=figures.max_abs if figures is not None else 0.0,
        max_rel=verdict.max_error,
        sqnr_db=figures.sqnr_db if figures is not None else None,
        cosine=figures.cosine if figures is not None else 1.0,
        agreement=figures.agreement if figures is not None else None,
        allowed=verdict.allowed,
        equal=verdict.outcome is not Outcome.BROKEN,
        note=verdict.reason,
    )


def _layers(a: LoadedModel, b: LoadedModel, pair: Pair, progress: Progress) -> LayerTable:
    progress.stage("layers")
    feeds = pair.seen.probes[:_LAYER_FEEDS]
    found = compare_layers(a.model, b.model, feeds, pair.allowance, pair.seed)
    at = next((k for k, e in enumerate(found) if e.parts), None)
    return LayerTable(
        compared=len(found),
        first=None if at is None else _layer_row(found[at]),
        rows=[_layer_row(found[k]) for k in _shown(len(found), at)],
    )


def _shown(size: int, at: int | None) -> list[int]:
    """Choose rows evenly over the graph, and those around the one where the models part."""
    if size == 0:
        return []
    even = np.linspace(0, size - 1, min(size, _LAYER_ROWS)).astype(int).tolist()
    near = [] if at is None else range(max(0, at - 1), min(size, at + 2))
    return sorted({*even, *near})


def _layer_row(error: LayerError) -> LayerRow:
    return LayerRow(
        node=error.node,
        op_type=error.op_type,
        value=error.value,
        max_rel=error.verdict.max_error,
        sqnr_db=error.sqnr_db,
        equal=not error.parts,
        note=error.verdict.reason,
    )


def _blame(pair: Pair, reproducer: Path | None, progress: Progress) -> Bisection | None:
    recipe = find_recipe(pair)
    if recipe is not None:
        return bisect(pair, recipe, reproducer, progress)
    if reproducer is None:
        return None
    text = f"{pair.first.name} is not the original that an output folder around the other tells of"
    return Bisection(note=f"{text}, so no pass can be named and nothing was written")
