from __future__ import annotations

import sys

import pytest

from optcc.errors import ConfigError, ExitCode
from optcc.runtime.user_code import import_callable, user_code


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write the text of a module into the working folder; return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str) -> str:
        (tmp_path / "optcc_user_module.py").write_text(text)
        monkeypatch.delitem(sys.modules, "optcc_user_module", raising=False)
        return "optcc_user_module"

    yield write
    sys.modules.pop("optcc_user_module", None)


def test_a_callable_of_the_working_folder_is_found_and_the_path_is_left_as_it_was(module):
    name = module("class A:\n    @staticmethod\n    def f(): return 7\n")
    before = list(sys.path)
    assert import_callable("--calib", f"{name}:A.f")() == 7
    assert sys.path == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def (", "--calib optcc_user_module:f cannot be loaded: SyntaxError"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("raise SystemExit(7)", "cannot be loaded: SystemExit: 7"),
        ("import no_such_module", "cannot be loaded: No module named 'no_such_module'"),
        ("g = 1", "has no attribute 'f'"),
        ("f = 1", "is int, it must be callable"),
    ],
)
def test_a_module_that_is_no_good_is_refused(module, text, message):
    with pytest.raises(ConfigError, match=message):
        import_callable("--calib", f"{module(text)}:f")


@pytest.mark.parametrize("text", [":f", "optcc_user_module:", "..:f"])
def test_half_a_name_is_refused(module, text):
    module("f = len")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        import_callable("--calib", text)


@pytest.mark.parametrize("error", [KeyError("k"), SystemExit(7), ValueError()])
def test_what_user_code_raises_is_named(error):
    with pytest.raises(ConfigError, match=f"m:f raised {type(error).__name__}"), user_code("m:f"):
        raise error


@pytest.mark.parametrize(
    "error", [SystemExit(int(ExitCode.TERMINATED)), KeyboardInterrupt(), ConfigError("ours")]
)
def test_signals_and_our_own_errors_pass_through(error):
    with pytest.raises(type(error)) as caught, user_code("m:f"):
        raise error
    assert caught.value is error
