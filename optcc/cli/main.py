"""The `optcc` command: which commands exist, and how a failure becomes an exit code."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, NoReturn, cast

import typer

from optcc import __version__
from optcc.cli import console
from optcc.cli.compile import compile_command
from optcc.cli.explain import explain_command
from optcc.cli.inspect import inspect_command
from optcc.cli.listing import doctor_command, passes_command
from optcc.cli.report import report_command
from optcc.cli.verify import verify_command
from optcc.errors import ConfigError, ExitCode, OptccError

__all__ = ["app", "main", "run"]

_UsageError = cast("type[Exception]", typer.BadParameter.__bases__[0])
"""Typer's class for a wrong command line: its own in new versions, click's in old ones."""

app = typer.Typer(
    name="optcc",
    help="Compile trained ONNX models into verified, smaller and faster ones.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("compile")(compile_command)
app.command("report")(report_command)
app.command("inspect")(inspect_command)
app.command("explain")(explain_command)
app.command("verify")(verify_command)
app.command("passes")(passes_command)
app.command("doctor")(doctor_command)


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    console.flush()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Args:
        arguments: What follows `optcc` on the command line.

    Returns:
        The exit code; every expected failure has been explained on stderr.
    """
    try:
        result = app(list(arguments), prog_name="optcc", standalone_mode=False)
    except OptccError as problem:
        console.error(problem)
        return int(problem.exit_code)
    except _UsageError as problem:
        console.error(_usage(problem))
        return int(ExitCode.CONFIG)
    except (KeyboardInterrupt, typer.Abort):
        result = int(ExitCode.INTERRUPTED)
    except Exception:  # a bug of ours: the whole traceback is wanted
        sys.excepthook(*sys.exc_info())
        console.status(
            f"error: this is a bug in optcc {__version__}; please report it with the above"
        )
        return int(ExitCode.BUG)
    if result == ExitCode.INTERRUPTED:
        console.status("interrupted")
    return result if isinstance(result, int) else int(ExitCode.DONE)


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit."),
    ] = False,
) -> None:
    """Compile trained ONNX models into verified, smaller and faster ones."""
    if version:
        console.out(__version__)
    elif context.invoked_subcommand is None:
        console.out(context.get_help())


def _usage(problem: Exception) -> ConfigError:
    context = getattr(problem, "ctx", None)
    path = context.command_path if context is not None else "optcc"
    format_message = getattr(problem, "format_message", problem.__str__)
    what = str(format_message()).strip().rstrip(".").replace("Value error, ", "")
    return ConfigError(what[:1].lower() + what[1:], hint=f"{path} --help")


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(int(ExitCode.TERMINATED))
