import io

from optcc.cli.console import LiveLine, Warnings, make_progress, printable


def test_printable_keeps_text_and_newlines() -> None:
    assert printable("Größe → 3\nzwei") == "Größe → 3\nzwei"
    assert printable("a\tb\x00\x1b") == "a\\tb\\x00\\x1b"


def test_live_line_erases_itself() -> None:
    stream = io.StringIO()
    line = LiveLine(stream)
    line.stage("calibrate")
    line.close()
    assert "calibrate" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\n" not in stream.getvalue()


def test_live_line_draws_seldom() -> None:
    stream = io.StringIO()
    line = LiveLine(stream)
    line.stage("calibrate")
    for k in range(10_000):
        line.step(k, 10_000)
    assert stream.getvalue().count("\r") < 1_000


def test_live_line_never_wraps(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    LiveLine(stream).stage("x" * 500)
    assert len(stream.getvalue().removeprefix("\r\x1b[K")) < 40


def test_warnings_stand_on_their_own_line(capsys) -> None:
    stream = io.StringIO()
    line = LiveLine(stream)
    line.stage("build")
    line.warn("tensorrt_rtx is not installed")
    assert stream.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().err == "warning: tensorrt_rtx is not installed\n"


def test_no_live_line_away_from_a_terminal(capsys) -> None:
    assert isinstance(make_progress(), Warnings)
