"""Matrix products whose result and time do not depend on how busy the machine is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the matrix products of numpy in one thread.

    Sums then come in one order, so that results have the same bits on any number of cores. And the
    threads of a product wait for each other in a loop: where others use the cores, a short one
    takes a hundred times longer than alone.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
