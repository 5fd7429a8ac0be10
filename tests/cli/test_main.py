import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import optcc
from optcc.cli.main import run
from optcc.errors import ConfigError, ExitCode, OptccError, UnsupportedModelError, VerificationError
from tests.cli.conftest import FakeDriver

HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "torch", "tensorrt_rtx", "jinja2", "rich")


def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


COMMANDS = ("compile", "explain", "verify", "inspect", "report", "passes", "doctor")
HELP = [[name, "--help"] for name in COMMANDS]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], *HELP])
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    done = python(
        f"""
        import sys
        from optcc.cli.main import run
        assert run({arguments!r}) == 0
        print(sorted(set({HEAVY!r}) & set(sys.modules)))
        """
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_command_shows_the_help(capsys) -> None:
    assert run([]) == 0
    text = capsys.readouterr().out
    for name in ("compile", "report", "inspect", "explain", "verify", "passes", "doctor"):
        assert f"\n  {name} " in text


def test_version(capsys) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{optcc.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["comple"], "no such command 'comple'"),
        (["compile"], "missing argument"),
        (["compile", "m.onnx", "--precison", "int8"], "--precison"),
        (["compile", "m.onnx", "--precision", "int9"], "'int9' is not one of"),
        (["compile", "m.onnx", "--seed", "x"], "--seed"),
        (["compile", "m.onnx", "--seed", "-1"], "--seed is -1"),
        (["report", "out", "--format", "pdf"], "'pdf' is not one of"),
    ],
)
def test_a_wrong_command_line_is_code_2_and_one_line(arguments, words: str, capsys) -> None:
    assert run(arguments) == ExitCode.CONFIG
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert words in captured.err
    assert len(captured.err.splitlines()) <= 2


def raising(driver: FakeDriver, error: BaseException) -> None:
    def fail(progress) -> None:
        raise error

    driver.during = fail


@pytest.mark.parametrize("kind", [ConfigError, UnsupportedModelError, VerificationError])
def test_each_error_has_its_code_and_no_traceback(driver, kind: type[OptccError], capsys) -> None:
    raising(driver, kind("what went wrong"))
    assert run(["compile", "m.onnx"]) == kind.exit_code
    assert capsys.readouterr().err == "error: what went wrong\n"


def test_ctrl_c_is_130(driver: FakeDriver, capsys) -> None:
    raising(driver, KeyboardInterrupt())
    assert run(["compile", "m.onnx"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_bug_shows_its_traceback_and_is_code_1(driver: FakeDriver, capsys) -> None:
    error = RuntimeError("boom")
    error.add_note("pass: fuse.conv-batchnorm")
    raising(driver, error)
    assert run(["compile", "m.onnx"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "RuntimeError: boom\npass: fuse.conv-batchnorm" in err
    assert err.splitlines()[-1].startswith("error: this is a bug in optcc")


def test_names_in_messages_cannot_steer_the_terminal(driver: FakeDriver, capsys) -> None:
    raising(driver, UnsupportedModelError("node '\x1b[2J\u202e' is unknown"))
    run(["compile", "m.onnx"])
    assert capsys.readouterr().err == "error: node '\\x1b[2J\\u202e' is unknown\n"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_sigterm_is_143(tmp_path: Path) -> None:
    code = """
        import sys, types, time
        fake = types.ModuleType("optcc.driver")
        def compile_model(request, progress):
            print("working", file=sys.__stdout__, flush=True)
            time.sleep(60)
        fake.compile_model = compile_model
        sys.modules["optcc.driver"] = fake
        from optcc.cli.main import main
        sys.argv = ["optcc", "compile", "m.onnx"]
        main()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    started = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert started == "working\n", err
    assert process.returncode == 143
    assert err == ""


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX pipes")
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_reader_who_has_gone_is_no_error(size: int) -> None:
    code = f"""
        import sys, types
        fake = types.ModuleType("optcc.driver")
        fake.render_report = lambda folder, form: "x" * {size}
        sys.modules["optcc.driver"] = fake
        from optcc.cli.main import main
        sys.argv = ["optcc", "report", "out", "--format", "md"]
        sys.stdin.read()
        main()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=30), err) == (0, "")
