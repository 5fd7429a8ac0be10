"""One run of one pass."""

from __future__ import annotations

import zlib

import numpy as np
import onnx_ir as ir

from optcc.errors import OptccError
from optcc.passkit.contract import Pass, PassResult
from optcc.pipeline.context import RunnerContext
from optcc.pipeline.ledger import BrokenPromiseError, Ledger

__all__ = ["run_pass"]


def run_pass(
    one: Pass, model: ir.Model, ctx: RunnerContext, ledger: Ledger, turn: int
) -> PassResult:
    """Run `one` on `model`, with its own random numbers and its own ledger.

    Args:
        one: The pass.
        model: Changed in place.
        ctx: What the pass may ask for.
        ledger: Decides which rewrites happen and checks them.
        turn: Round of the stage, from 0.

    Raises:
        BrokenPromiseError: A check failed; `model` is spoilt.
    """
    ctx.rng = np.random.default_rng([ctx.seed, zlib.crc32(one.name.encode()), turn])
    ctx.ledger = ledger
    try:
        return one.run(model, ctx)
    except (OptccError, BrokenPromiseError):
        raise
    except Exception as error:
        error.add_note(f"while running pass {one.name!r}, round {turn + 1}")
        raise
    finally:
        ctx.ledger = Ledger()
