"""Noise that int8 leaves on results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from optcc.passkit.contract import Feed

__all__ = ["noise_shares", "sqnr_db"]


def sqnr_db(reference: np.ndarray, got: np.ndarray) -> float | None:
    """Return signal over noise in dB; None where the reference says nothing.

    A reference of zeros, of one constant, or with values that are not finite proves nothing.
    """
    share = noise_shares([{"": reference}], [{"": got}]).get("")
    if share is None:
        return None
    return np.inf if share == 0 else float(-10 * np.log10(share))


def noise_shares(reference: Sequence[Feed], got: Sequence[Feed]) -> Mapping[str, float]:
    """Return per float output the noise power over the signal power, on all feeds together.

    Outputs whose reference says nothing are missing.
    """
    shares = {}
    for name, first in reference[0].items() if reference else ():
        if first.dtype.kind != "f":
            continue
        exact = np.concatenate([np.asarray(f[name], np.float64).reshape(-1) for f in reference])
        noisy = np.concatenate([np.asarray(f[name], np.float64).reshape(-1) for f in got])
        if exact.size and np.all(np.isfinite(exact)) and np.ptp(exact) > 0:
            shares[name] = float(np.square(exact - noisy).sum() / np.square(exact).sum())
    return shares
