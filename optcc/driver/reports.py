"""Read and render the report of a finished folder."""

from __future__ import annotations

from pathlib import Path

from optcc.errors import ConfigError
from optcc.report.codec import decode, encode
from optcc.report.schema import Report

__all__ = ["load_report", "render_report"]


def load_report(folder: Path) -> Report:
    """Read report.json of `folder`.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    path = folder / "report.json" if folder.is_dir() else folder
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{folder} holds no report.json", hint="give the output folder of `optcc compile`"
        ) from error


def render_report(folder: Path, form: str) -> str:
    """Return the report of `folder` as `terminal`, `html`, `md` or `json`.

    Raises:
        ConfigError: There is no report, or no such form.
    """
    report = load_report(folder)
    if form == "json":
        return encode(report).decode()
    if form == "html":
        from optcc.report.render_html import render_html

        return render_html(report)
    if form == "md":
        from optcc.report.render_markdown import render_markdown

        return render_markdown(report)
    if form == "terminal":
        from optcc.report.render_terminal import render_terminal

        return render_terminal(report)
    raise ConfigError(f"there is no report format {form!r}", hint="terminal, html, md or json")
