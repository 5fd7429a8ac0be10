"""Which passes run: the preset of the precision, as changed by the user's selection."""

from __future__ import annotations

from functools import wraps
from pathlib import Path

from optcc.config.request import CompileRequest, Precision
from optcc.config.selection import PassSelection, read_recipe
from optcc.driver.data import choose_precision
from optcc.errors import ConfigError
from optcc.passkit.surgeon import GraphSurgeonPass
from optcc.pipeline.plan import Plan, load_plan, validate_plan
from optcc.pipeline.registry import PassEntry, PassRegistry, discover_passes
from optcc.pipeline.selection import select
from optcc.progress import Progress
from optcc.report.inspection import PlanInfo, PlannedPass, PlannedStage
from optcc.runtime.user_code import load_function, user_code

__all__ = ["chosen", "plan_passes", "planned"]


def planned(precision: Precision, selection: PassSelection) -> tuple[Plan, PassRegistry]:
    """Return the plan to run and the passes it names.

    Raises:
        ConfigError: The selection names what does not exist, or passes would miss what they need.
    """
    registry = discover_passes().joined(_surgeon(text) for text in selection.surgeons)
    plan = select(load_plan(precision.value), selection, registry)
    validate_plan(plan, registry)
    return plan, registry


def chosen(request: CompileRequest) -> PassSelection:
    """Return what the recipe and the options say together; the recipe comes first."""
    if request.recipe is None:
        return request.passes
    return read_recipe(request.recipe).joined(request.passes)


def plan_passes(request: CompileRequest, progress: Progress) -> PlanInfo:
    """Return what `compile` would run for this request, without running it.

    Raises:
        ConfigError: As `compile` would.
    """
    if not request.model.is_file():
        raise ConfigError(f"{request.model} does not exist or is not a file")
    precision, _ = choose_precision(request, progress)
    plan, registry = planned(precision, chosen(request))
    owners = {entry.name: entry.distribution for entry in registry}
    stages = [
        PlannedStage(
            name=stage.name,
            rounds=stage.repeat_until_stable,
            branch=stage.branch,
            passes=[
                PlannedPass(name, registry.get(name).exactness.value, owners[name])
                for name in stage.passes
            ],
        )
        for stage in plan.stages
    ]
    return PlanInfo(model=request.model.name, precision=precision.value, stages=stages)


def _surgeon(text: str) -> PassEntry:
    function = load_function("--surgeon", text)

    @wraps(function)
    def guarded(graph: object) -> object:
        with user_code(f"--surgeon {text}"):
            return function(graph)

    made = GraphSurgeonPass(guarded)
    return PassEntry(made.name, Path(text.rpartition(":")[0]).name, lambda: made)
