"""Run the recorded pipeline again and find the rewrite after which the outputs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from optcc.artifacts.manifest import read_manifest
from optcc.calibrate.ranges import load_ranges
from optcc.config.request import Precision, VerifyMode
from optcc.config.selection import PassSelection
from optcc.driver.data import profile_of
from optcc.driver.planning import planned
from optcc.driver.reproducer import write_reproducer
from optcc.driver.work import CPU_MODEL, MODEL
from optcc.errors import BackendError, ConfigError, OptccError, VerificationError
from optcc.frontends.onnx_file import LoadedModel
from optcc.passkit.contract import Exactness, Fact, Feed
from optcc.pipeline import snapshot
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.ledger import BrokenPromiseError
from optcc.pipeline.plan import Plan, Stage, preset_names
from optcc.pipeline.registry import PassRegistry
from optcc.pipeline.replay import Replay
from optcc.pipeline.runner import Runner
from optcc.progress import Progress
from optcc.report.comparison import Bisection
from optcc.verify.allowance import Allowance, compare_outputs
from optcc.verify.numeric import Outcome
from optcc.verify.observe import Observations
from optcc.verify.reference import open_model

__all__ = ["Pair", "Recipe", "bisect", "find_recipe"]

_FEEDS = 4
_SPELLINGS = {MODEL: ("lower-tensorrt", "precision"), CPU_MODEL: ("lower-onnxruntime",)}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models that differ.

    Attributes:
        seen: Inputs, and what `first` gives for them.
    """

    first: LoadedModel
    second: LoadedModel
    seen: Observations
    allowance: Allowance
    seed: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the second model was made from the first.

    Attributes:
        folder: That holds the second model.
        options: As its manifest records them.
        plan: The stages that lead to the second model's spelling.
    """

    folder: Path
    options: Mapping[str, object]
    seed: int
    plan: Plan
    registry: PassRegistry


def find_recipe(pair: Pair) -> Recipe | None:
    """Return how the second model was made, if its folder says that it was from the first."""
    folder = pair.second.path.parent
    manifest = read_manifest(folder)
    if manifest is None or pair.second.name not in _SPELLINGS:
        return None
    tables = (manifest.get(k) for k in ("options", "input", "seeds"))
    options, source, seeds = (t if isinstance(t, dict) else {} for t in tables)
    preset = options.get("precision")
    if source.get("sha256") != pair.first.sha256 or preset not in preset_names():
        return None
    plan, registry = planned(Precision(preset), _selection(options))
    chosen = [s for s in plan.stages if not s.branch or s.name in _SPELLINGS[pair.second.name]]
    return Recipe(
        folder=folder,
        options=options,
        seed=int(seeds.get("seed", 0)),
        plan=Plan(plan.name, tuple(chosen)),
        registry=registry,
    )


def _selection(options: Mapping[str, object]) -> PassSelection:
    """Return the passes that were chosen; scripts and recipes are known by their digest only."""

    def names(key: str) -> tuple[str, ...]:
        listed = options.get(key)
        return tuple(map(str, listed)) if isinstance(listed, list) else ()

    return PassSelection(run=names("passes"), only=names("only_pass"), skip=names("skip_pass"))


def bisect(pair: Pair, recipe: Recipe, reproducer: Path | None, progress: Progress) -> Bisection:
    """Find the pass and the rewrite after which the outputs leave the allowance.

    Args:
        pair: The two models; the first is changed.
        recipe: The stages to run again.
        reproducer: Folder for the smallest models that show it.
        progress: Receives the stages.

    Raises:
        WriteError: The reproducer cannot be written.
    """
    model, ctx = pair.first.model, _context(pair, recipe)
    original = snapshot.take(model)

    def fault(before: ir.Model, after: ir.Model, weakest: Exactness) -> str | None:
        return _difference(pair, original, after)

    for stage in recipe.plan.stages:
        missing = _missing(stage, ctx, recipe)
        if missing:
            return Bisection(stage=stage.name, note=f"up to stage {stage.name!r}, which {missing}")
        progress.stage(f"bisect {stage.name}")
        before, state = snapshot.take(model), ctx.save()
        try:
            broken = Replay(recipe.registry, stage, before, ctx, state, {}).search(model, fault)
        except OptccError as error:
            return Bisection(
                stage=stage.name, note=f"stage {stage.name!r} cannot be run again: {error.what}"
            )
        if broken is not None:
            found = _Found(pair, recipe, stage, before, broken)
            ctx.restore(state)
            return found.told(ctx, reproducer)
    return Bisection(note=_innocent(pair, recipe))


def _context(pair: Pair, recipe: Recipe) -> RunnerContext:
    options, shapes = recipe.options, recipe.options.get("shapes")
    probes = pair.seen.probes[:_FEEDS]
    return RunnerContext(
        signature=pair.first.signature,
        profile=profile_of(pair.first.signature, shapes if isinstance(shapes, str) else None),
        seed=recipe.seed,
        cpu_class=str(options.get("cpu_class", "vnni")),
        sample_source=lambda: probes,
        probes=probes,
    )


def _missing(stage: Stage, ctx: RunnerContext, recipe: Recipe) -> str:
    """Provide the ranges that a stage assumes; say why it cannot be run if there are none."""
    if Fact.RANGES not in stage.assumes or ctx.ranges is not None:
        return ""
    if ctx.plan is None:
        return "needs ranges of a plan that no stage made"
    try:
        ctx.ranges = load_ranges(recipe.folder / "ranges.json", ctx.plan.observed())
    except ConfigError as error:
        return f"needs calibration ranges ({error.what}), the outputs stay within the allowance"
    return ""


def _difference(pair: Pair, original: ir.Model, after: ir.Model) -> str | None:
    """Say how the outputs of `after` leave the allowance, or None."""
    seen = Observations(pair.seen.probes[:_FEEDS], pair.seen.outputs[:_FEEDS])
    try:
        with open_model(after) as session:
            results = [session.run(p, list(seen.outputs[0])) for p in seen.probes]
    except BackendError as error:
        return f"the model cannot be run after it: {error.what}"
    verdicts = compare_outputs(original, seen, results, pair.allowance, pair.seed)
    broken = [(n, v) for n, v in verdicts.items() if v.outcome is Outcome.BROKEN]
    return f"output {broken[0][0]!r}: {broken[0][1].reason}" if broken else None


def _innocent(pair: Pair, recipe: Recipe) -> str:
    text = f"run again, the recorded pipeline stays within the allowance: {pair.second.name} is not"
    more = [k for k in ("recipe", "surgeons", "preprocessing") if _set(recipe, k)]
    unknown = f" (the recorded {', '.join(more)} was not applied)" if more else ""
    return f"{text} what it makes, or another version of optcc made it{unknown}"


def _set(recipe: Recipe, key: str) -> bool:
    return bool(recipe.options.get(key))


@dataclass(frozen=True, slots=True)
class _Found:
    """The rewrite to blame, and where to look for the smallest model that shows it."""

    pair: Pair
    recipe: Recipe
    stage: Stage
    before: ir.Model
    broken: BrokenPromiseError

    def told(self, ctx: RunnerContext, reproducer: Path | None) -> Bisection:
        broken = self.broken
        lossy = self.recipe.registry.get(broken.pass_name).exactness is Exactness.LOSSY
        at = f" at {broken.node!r}" if broken.node else ""
        purpose = ", which changes the numbers on purpose" if lossy else ""
        text = f"the outputs leave the allowance with pass {broken.pass_name!r}{at}"
        if reproducer is not None:
            self._write(ctx, reproducer)
        return Bisection(
            stage=self.stage.name,
            name=broken.pass_name,
            node=broken.node,
            lossy=lossy,
            reason=broken.reason,
            reproducer=reproducer.as_posix() if reproducer is not None else "",
            note=f"{text} in stage {self.stage.name!r}{purpose}: {broken.reason}",
        )

    def _write(self, ctx: RunnerContext, folder: Path) -> None:
        """Write the region alone if a check of the rewrite shows the fault, else whole models."""
        if self._write_region(ctx, folder):
            return
        failure = self.broken.failure
        if failure is not None:
            write_reproducer(folder, failure.before, failure.after, self.pair.seen.probes[:1])

    def _write_region(self, ctx: RunnerContext, folder: Path) -> bool:
        kept: list[str] = []
        wanted = f"{self.broken.pass_name}-{self.broken.node}"

        def save(
            name: str, before: ir.Model | None, after: ir.Model | None, feeds: Sequence[Feed]
        ) -> str | None:
            if name == wanted and before is not None and feeds:
                write_reproducer(folder, before, after, feeds)
                kept.append(name)
            return None

        runner = Runner(registry=self.recipe.registry, verify=VerifyMode.EACH, save_reproducer=save)
        try:
            runner.run_stage(snapshot.take(self.before), self.stage, ctx)
        except VerificationError:
            return bool(kept)
        return False
