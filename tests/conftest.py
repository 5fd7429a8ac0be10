"""What holds for every test."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Make sure that children can be interrupted.

    A shell without job control starts background commands with Ctrl-C ignored, and children
    inherit that: CI systems do so.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
