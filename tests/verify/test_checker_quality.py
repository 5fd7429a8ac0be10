"""The checker is checked: planted faults must be caught, blamed rightly and rolled back.

This is a fixed slice of `benchmarks/verifier.py`. Each graph meets a part of the wrong passes, so
that all of them are met in a minute.
"""

from __future__ import annotations

from tests.verify.quality import registry_with
from tests.verify.wrong_passes import wrong_passes

PASSES = wrong_passes()
REGISTRY = registry_with(PASSES)
ALARM_SEEDS = range(1000, 1035)
SLICE = 3
"""Graphs on which each wrong pass is tried: the first ones on which it changes the outputs."""
