"""One Python call behind every command; everything the command line can do, this can do."""

from optcc.backends.doctor import diagnose
from optcc.driver.comparison import compare_models
from optcc.driver.compile import Outcome, compile_model
from optcc.driver.explanation import explain
from optcc.driver.inspection import inspect_file, list_passes
from optcc.driver.planning import plan_passes
from optcc.driver.reports import load_report, render_report
from optcc.driver.verification import verify_output

__all__ = [
    "Outcome",
    "compare_models",
    "compile_model",
    "diagnose",
    "explain",
    "inspect_file",
    "list_passes",
    "load_report",
    "plan_passes",
    "render_report",
    "verify_output",
]
