"""One Python call behind every command; everything the command line can do, this can do."""

from optcc.backends.doctor import diagnose
from optcc.driver.compile import Outcome, compile_model
from optcc.driver.inspection import inspect_file, list_passes
from optcc.driver.planning import plan_passes
from optcc.driver.reports import load_report, render_report

__all__ = [
    "Outcome",
    "compile_model",
    "diagnose",
    "inspect_file",
    "list_passes",
    "load_report",
    "plan_passes",
    "render_report",
]
