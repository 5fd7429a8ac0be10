from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from optcc.config.request import CompileRequest
from optcc.progress import Progress
from optcc.report.verdict import exit_code_of
from tests.report.sample import good_report


class FakeDriver(ModuleType):
    """Stands in for `optcc.driver`: records requests, returns or raises what the test wants."""

    def __init__(self) -> None:
        super().__init__("optcc.driver")
        self.requests: list[CompileRequest] = []
        self.report = good_report()
        self.during: Callable[[Progress], None] = lambda progress: None

    def compile_model(self, request: CompileRequest, progress: Progress) -> SimpleNamespace:
        self.requests.append(request)
        self.during(progress)
        code = exit_code_of(self.report, strict=request.strict)
        folder = Path(request.out_folder)
        return SimpleNamespace(report=self.report, folder=folder, exit_code=code)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setitem(sys.modules, "optcc.driver", fake)
    return fake
