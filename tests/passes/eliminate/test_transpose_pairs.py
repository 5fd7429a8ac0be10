from __future__ import annotations

import itertools

import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.passkit.testing import bare_context
from passes.eliminate.transpose_pairs import EliminateTransposePairs
from tests.models.sketch import Sketch
from tests.passes.promise import apply, feed, keeps, ops, reasons

ORDERS = [list(p) for p in itertools.permutations(range(3))]


def _pair(first: list[int] | None, second: list[int] | None, dims: list[int] | None) -> ir.Model:
    s = Sketch()
    one = s.op("Transpose", s.input("x", dims), **({} if first is None else {"perm": first}))
    two = s.op("Transpose", one, name="two", **({} if second is None else {"perm": second}))
    s.output(s.op("Neg", two), None)
    return s.model()


@settings(deadline=None, max_examples=20)
@given(first=st.sampled_from([None, *ORDERS]), second=st.sampled_from([None, *ORDERS]))
def test_same_numbers(first: list[int] | None, second: list[int] | None) -> None:
    model = _pair(first, second, [2, 3, 4])
    keeps(EliminateTransposePairs(), model, [feed(model)])
    assert ops(model).count("Transpose") <= 1


def test_opposite_orders_cancel() -> None:
    model = _pair([0, 2, 3, 1], [0, 3, 1, 2], [1, 2, 3, 4])
    apply(EliminateTransposePairs(), model)
    assert ops(model) == ["Neg"]


def test_unknown_rank_is_refused() -> None:
    model = _pair(None, None, None)
    result = EliminateTransposePairs().run(model, bare_context())
    assert reasons(result) == [("two", "the rank of 'x' is unknown")]


def test_first_transpose_that_others_read_stays() -> None:
    s = Sketch()
    one = s.op("Transpose", s.input("x", [2, 3]), to="one")
    s.output(s.op("Transpose", one, name="two"), [2, 3])
    s.output(s.op("Neg", one, name="reader"), [3, 2])
    result = apply(EliminateTransposePairs(), s.model())
    assert reasons(result) == [("two", "value 'one' is also read by 'reader'")]


def test_an_output_between_input_and_output_keeps_a_node() -> None:
    s = Sketch()
    s.output(s.op("Transpose", s.op("Transpose", s.input("x", [2, 3]))), [2, 3])
    model = s.model()
    keeps(EliminateTransposePairs(), model, [feed(model)])
    assert ops(model) == ["Transpose"]
