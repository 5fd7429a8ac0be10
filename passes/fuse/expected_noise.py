"""How noisy a matrix product gets in int8, as far as ranges alone tell."""

from __future__ import annotations

import numpy as np

__all__ = ["noise_share"]

_LEVELS = 127.0


def noise_share(data: np.ndarray, weight: np.ndarray) -> float:
    """Return the energy of rounding errors over that of the product.

    One step for all of `data` and one per column of `weight`, each from its largest magnitude; an
    error is spread evenly over a step, so that its mean square is a twelfth of that of the step.

    Args:
        data: [rows, K].
        weight: [K, N].

    Returns:
        0 where there is no signal.
    """
    signal = float(np.square(data @ weight).sum())
    if signal == 0.0:
        return 0.0
    step = float(np.abs(data).max()) / _LEVELS
    steps = np.abs(weight).max(axis=0) / _LEVELS
    of_data = len(data) * step**2 * float(np.square(weight).sum())
    of_weight = float(np.square(steps).sum()) * float(np.square(data).sum())
    return (of_data + of_weight) / 12.0 / signal
