from __future__ import annotations

from passes.quantize.cpu_units import cpu_units
from tests.models.layers import conv
from tests.models.sketch import Sketch


def test_a_pool_and_what_hands_it_on_form_units() -> None:
    s = Sketch()
    first = conv(s, s.input("x", [1, 16, 8, 8]), "first")
    pool = s.op("GlobalAveragePool", first, name="pool")
    flat = s.op("Flatten", pool, name="flat")
    s.output(s.op("Gemm", flat, s.weight("w", 16, 16), name="fc"))
    units = cpu_units(s.model().graph, frozenset({"first", "fc"}), [first], [flat])
    assert [u.nodes for u in units] == [("pool",), ("flat",)]
    assert [u.activations for u in units] == [("first_out",), ("pool_out",)]
    assert all(u.weight is None for u in units)


def test_an_add_needs_int8_on_both_sides() -> None:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    a, b = conv(s, x, "a"), conv(s, x, "b")
    both, mixed = s.op("Add", a, b, name="both"), s.op("Add", a, x, name="mixed")
    s.output(conv(s, both, "c"))
    s.output(conv(s, mixed, "d"))
    planned = frozenset("abcd")
    units = cpu_units(s.model().graph, planned, [a, b], [both, mixed])
    assert [u.nodes for u in units] == [("both",)]


def test_an_add_that_no_layer_reads_stays_float() -> None:
    s = Sketch()
    x = s.input("x", [1, 16, 8, 8])
    a, b = conv(s, x, "a"), conv(s, x, "b")
    s.output(s.op("Add", a, b, name="add"))
    assert cpu_units(s.model().graph, frozenset("ab"), [a, b], [x]) == []
