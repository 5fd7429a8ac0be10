from __future__ import annotations

from threadpoolctl import threadpool_info

from optcc.passkit.arithmetic import one_thread


def _threads() -> list[int]:
    return [int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_products_run_in_one_thread_and_afterwards_as_before() -> None:
    before = _threads()
    assert before
    with one_thread():
        assert set(_threads()) == {1}
    assert _threads() == before
