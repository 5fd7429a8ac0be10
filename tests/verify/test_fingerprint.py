from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optcc.verify.fingerprint import Fingerprints
from tests.models.regions import text, weight


def mark(body: str, prints: Fingerprints | None = None) -> bytes:
    model = text(f"g (float[2] x, float[2] z) => (float[2] y) {{ {body} }}")
    return (prints or Fingerprints()).of_graph(model.graph)


SAME = [
    ("y = Neg(x)", "[other] y = Neg(x)"),
    ("a = Neg(x) y = Exp(a)", "b = Neg(x) y = Exp(b)"),
    ("a = Neg(x) y = Exp(a)", "i = Identity(x) a = Neg(i) y = Exp(a)"),
    ("a = Neg(x) b = Exp(z) y = Add(a, b)", "b = Exp(z) a = Neg(x) y = Add(a, b)"),
    ("a = Neg(x) y = Exp(x)", "y = Exp(x)"),
    ("a = Neg(x) b = Neg(x) y = Add(a, b)", "a = Neg(x) y = Add(a, a)"),
]
OTHER = [
    ("y = Neg(x)", "y = Abs(x)"),
    ("y = Sub(x, z)", "y = Sub(z, x)"),
    ("y = LeakyRelu<alpha = 0.1>(x)", "y = LeakyRelu<alpha = 0.2>(x)"),
    ("y = Neg(x)", "y = Neg(z)"),
    ("a, y = TopK(x, z)", "y, a = TopK(x, z)"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_what_computes_the_same_looks_the_same(first, second):
    assert mark(first) == mark(second)


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_what_may_differ_looks_different(first, second):
    assert mark(first) != mark(second)


def with_constant(numbers: str, as_node: bool) -> ir.Model:
    if as_node:
        body = f"c = Constant<value = float[2] {{{numbers}}}>() y = Add(x, c)"
        return text(f"g (float[2] x) => (float[2] y) {{ {body} }}")
    return text(f"g (float[2] x) => (float[2] y) <float[2] c = {{{numbers}}}> {{ y = Add(x, c) }}")


def test_a_constant_node_and_an_initializer_are_one():
    prints = Fingerprints()
    node, value, other = (
        prints.of_graph(m.graph)
        for m in (
            with_constant("1.0, 2.0", True),
            with_constant("1.0, 2.0", False),
            with_constant("1.0, 3.0", False),
        )
    )
    assert node == value != other


def test_branches_count():
    def branch(op: str) -> bytes:
        model = text(
            f"""g (float[2] x, bool c) => (float[2] y) {{ y = If (c) <
              then_branch = t () => (float[2] p) {{ p = {op}(x) }},
              else_branch = e () => (float[2] q) {{ q = Abs(x) }} > }}"""
        )
        return Fingerprints().of_graph(model.graph)

    assert branch("Neg") == branch("Neg") != branch("Exp")


def test_large_tensors_count_by_identity():
    prints = Fingerprints()
    big = np.ones(20000, np.float32)
    marks = []
    for array in (big, big.copy()):
        model = text("g (float[2] x) => (float[2] y) { y = Neg(x) }")
        value = weight(model, "big", array)
        marks.append(prints.of([value], []))
        assert prints.of([value], []) == marks[-1]
    assert marks[0] != marks[1]


def test_the_signature_counts():
    first = text("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    second = text("g (float[3] x) => (float[3] y) { y = Neg(x) }")
    prints = Fingerprints()
    assert prints.of_graph(first.graph) != prints.of_graph(second.graph)
