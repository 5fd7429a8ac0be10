"""Run code that a user names as module:callable: whatever it does, our answer is one sentence."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from optcc.errors import ConfigError, ExitCode

__all__ = ["import_callable", "load_function", "user_code"]

_HINT = "the module must lie in the working folder or be installed"


def import_callable(option: str, text: str, folders: Sequence[Path] = ()) -> Callable[..., object]:
    """Import `module:callable`; the working folder is searched first.

    Args:
        option: That names it, for messages.
        text: Module and callable; the callable may be an attribute of an attribute.
        folders: Searched after the working folder and before what is installed.

    Raises:
        ConfigError: It cannot be imported, or is not callable.
    """
    module_name, _, attribute = text.partition(":")
    with _search_path([Path.cwd(), *folders]), _explained(f"{option} {text} cannot be loaded:"):
        target: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    if not callable(target):
        raise ConfigError(f"{option} {text} is {type(target).__name__}, it must be callable")
    return target


def load_function(option: str, text: str) -> Callable[..., object]:
    """Load `file.py:function`: the file at that path and nothing else is run.

    Args:
        option: That names it, for messages.
        text: Path and function.

    Raises:
        ConfigError: The text has no such form, there is no such file, or it has no such function.
    """
    path_text, _, name = text.rpartition(":")
    path = Path(path_text)
    if not (path_text.endswith(".py") and name.isidentifier()):
        raise ConfigError(f"{option} {text} must be file.py:function")
    if not path.is_file():
        raise ConfigError(f"{option} {text}: there is no file {path_text}")
    with _search_path([path.parent]), _explained(f"{option} {text} cannot be loaded:"):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        target: object = getattr(module, name)
    if not callable(target):
        raise ConfigError(f"{option} {text} is {type(target).__name__}, it must be callable")
    return target


@contextmanager
def user_code(name: str) -> Iterator[None]:
    """Turn what the code inside raises into an error that names it.

    Raises:
        ConfigError: The code raised, or tried to end the process.
    """
    with _explained(f"{name} raised", where=name):
        yield


@contextmanager
def _explained(beginning: str, where: str | None = None) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except SystemExit as error:
        if error.code == ExitCode.TERMINATED:
            raise
        raise ConfigError(f"{beginning} SystemExit: {error.code}", where=where) from error
    except Exception as error:  # it is not our code, and may raise anything
        known = isinstance(error, ImportError | AttributeError)
        text = str(error) if known and where is None else f"{type(error).__name__}: {error}"
        line = text.splitlines()[0][:300]
        hint = _HINT if known and where is None else None
        raise ConfigError(f"{beginning} {line}", where=where, hint=hint) from error


@contextmanager
def _search_path(folders: Sequence[Path]) -> Iterator[None]:
    """Put folders first on the module search path."""
    added = [str(f.resolve()) for f in folders]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)
