"""`optcc compile`: parse, call the driver, render what it returns."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optcc.cli import console
from optcc.cli.options import (
    CalibOption,
    OnlyPassOption,
    PassesOption,
    PrecisionOption,
    RecipeOption,
    SkipPassOption,
    SurgeonOption,
    names,
    selection,
)
from optcc.config.preprocessing import Preprocessing, parse_numbers
from optcc.config.request import Calibrator, CompileRequest, CpuClass, VerifyMode
from optcc.errors import ConfigError, VerificationError

if TYPE_CHECKING:
    from optcc.report.schema import Report

__all__ = ["compile_command", "parse_max_drop"]


def compile_command(  # one parameter per option: this is how typer reads them
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="OUT", help="Output folder [default: <model stem>.optcc here]."
        ),
    ] = None,
    precision: PrecisionOption = None,
    calib: CalibOption = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            "--eval",
            metavar="SOURCE",
            help="Evaluation data, in the same formats; its labels give accuracy.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="M", help="top1, top5, f1, mae or module:callable.")
    ] = None,
    max_drop: Annotated[
        str, typer.Option(metavar="P", help="Largest loss of accuracy in points, or none.")
    ] = "1.0",
    backend: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Repeatable: onnxruntime, tensorrt_rtx, tensorrt "
            "[default: onnxruntime, and tensorrt_rtx where it is installed].",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T", help="GPU target, repeatable [default: sm80, sm86, sm89, sm120]."
        ),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Dynamic inputs: 'x:1x3x224x224..8x3x224x224'."),
    ] = None,
    input_dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Callers hand over uint8 or float32; see --mean."),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(metavar="M,M,M", help="Put (x * scale - mean) / std in front of the model."),
    ] = None,
    std: Annotated[str | None, typer.Option(metavar="S,S,S", help="See --mean.")] = None,
    input_scale: Annotated[
        str, typer.Option(metavar="K", help="See --mean; 1/255 for means of 0 to 1.")
    ] = "1",
    swap_channels: Annotated[
        bool, typer.Option("--swap-channels", help="Callers hand over BGR for RGB.")
    ] = False,
    cpu_class: Annotated[
        CpuClass, typer.Option(help="CPUs that the ONNX Runtime artifact is for.")
    ] = CpuClass.VNNI,
    calibrator: Annotated[
        Calibrator, typer.Option(help="How activation ranges are chosen.")
    ] = Calibrator.AUTO,
    ranges: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="ranges.json of an earlier compile, instead of --calib."),
    ] = None,
    verify: Annotated[
        VerifyMode, typer.Option(help="Check numbers after each rewrite, or each stage only.")
    ] = VerifyMode.EACH,
    passes: PassesOption = None,
    only_pass: OnlyPassOption = None,
    skip_pass: SkipPassOption = None,
    surgeon: SurgeonOption = None,
    recipe: RecipeOption = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave a wrong rewrite out instead of stopping.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on every verdict but pass.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of every random number.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT even if it is not an earlier output.")
    ] = False,
    data_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Another folder that external data may lie in."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json and no more.")] = False,
) -> None:
    """Optimize MODEL; write models, engines, report."""
    request = CompileRequest(
        model=model,
        out=out,
        precision=precision,
        calib=calib,
        evaluation=evaluation,
        metric=metric,
        backends=names(backend),
        targets=names(target),
        shapes=shapes,
        max_drop=parse_max_drop(max_drop),
        cpu_class=cpu_class,
        calibrator=calibrator,
        verify=verify,
        keep_going=keep_going,
        strict=strict,
        seed=seed,
        force=force,
        data_root=data_root,
        ranges=ranges,
        passes=selection(passes, only_pass, skip_pass, surgeon),
        recipe=recipe,
        preprocessing=Preprocessing(
            dtype=input_dtype,
            mean=parse_numbers("--mean", mean),
            std=parse_numbers("--std", std),
            scale=parse_numbers("--input-scale", input_scale)[0],
            swap=swap_channels,
        ),
    )
    from optcc.driver import compile_model  # heavy imports stay out of `optcc --help`

    progress = console.make_progress()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a user's callable may print
            outcome = compile_model(request, progress)
    finally:
        progress.close()
    _print(outcome.report, outcome.folder, as_json=as_json)
    if outcome.exit_code:
        console.error(_refusal(outcome.report))
        raise typer.Exit(int(outcome.exit_code))


def parse_max_drop(text: str) -> float | None:
    """Read `--max-drop`: points, or `none`.

    Raises:
        ConfigError: Neither.
    """
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--max-drop is {text!r}, it must be 0 to 100 or none") from None


def _refusal(report: Report) -> VerificationError:
    """Say on stderr why nothing was written; the whole report is on stdout."""
    first = report.reasons[0] if report.reasons else "no reason recorded"
    return VerificationError(f"verdict {report.verdict!r}, so no artifact was written: {first}")


def _print(report: Report, folder: Path, *, as_json: bool) -> None:
    from optcc.cli.rendering import print_report
    from optcc.report.codec import encode

    if as_json:
        console.out(encode(report).decode())
        return
    print_report(report)
    shown = _from_here(folder)
    console.out(f"\noutput  {console.printable(str(shown))}")
    console.out(f"report  {console.printable(str(shown / 'report.html'))}")


def _from_here(folder: Path) -> Path:
    """Return `folder` as one types it in this working folder, if it lies inside."""
    try:
        return folder.resolve().relative_to(Path.cwd().resolve())
    except ValueError:
        return folder
