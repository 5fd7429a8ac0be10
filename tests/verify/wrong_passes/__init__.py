"""Passes with one planted fault each, which the runner must catch and roll back."""

from __future__ import annotations

from optcc.passkit.contract import Pass
from tests.verify.wrong_passes.attributes import attribute_faults
from tests.verify.wrong_passes.folds import FOLDS
from tests.verify.wrong_passes.merges import MergedDuplicates, MergedProducts, StaleConstants
from tests.verify.wrong_passes.structure import structure_faults
from tests.verify.wrong_passes.subtle import subtle_faults

__all__ = ["wrong_passes"]


def wrong_passes() -> list[Pass]:
    """Make one of each, by name."""
    whole: list[Pass] = [MergedProducts(), MergedDuplicates(), StaleConstants()]
    made = [
        *(fold() for fold in FOLDS),
        *whole,
        *attribute_faults(),
        *structure_faults(),
        *subtle_faults(),
    ]
    return sorted(made, key=lambda p: p.name)
