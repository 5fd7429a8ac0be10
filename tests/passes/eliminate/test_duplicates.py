from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optcc.graph.io import to_bytes
from optcc.passkit.testing import bare_context
from passes.eliminate.duplicates import EliminateDuplicates
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons


def _branches(op_type: str = "Relu", **other: object) -> Sketch:
    s = Sketch()
    x = s.input("x", [2, 8])
    a, b = s.op(op_type, x, name="a"), s.op(op_type, x, name="b", **other)
    s.output(s.op("Concat", a, b, axis=0), [4, 8])
    return s


def test_equal_nodes_become_one() -> None:
    model = _branches().model()
    keeps(EliminateDuplicates(), model, [feed(model)])
    assert ops(model) == ["Relu", "Concat"]


def test_chains_become_one_in_one_run() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    a, b = (s.op("Neg", s.op("Relu", x)) for _ in range(2))
    s.output(s.op("Concat", a, b, axis=0), [4, 8])
    model = s.model()
    keeps(EliminateDuplicates(), model, [feed(model)])
    assert ops(model) == ["Relu", "Neg", "Concat"]


def test_attributes_tell_nodes_apart() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    a, b = s.op("LeakyRelu", x, alpha=0.1), s.op("LeakyRelu", x, alpha=0.2)
    s.output(s.op("Concat", a, b, axis=0), [4, 8])
    assert not apply(EliminateDuplicates(), s.model()).rewrites


def test_random_nodes_stay_apart() -> None:
    assert not apply(EliminateDuplicates(), _branches("RandomNormalLike").model()).rewrites


def test_two_outputs_keep_their_names() -> None:
    s = Sketch()
    x = s.input("x", [2])
    s.output(s.op("Relu", x, name="a", to="p"), [2])
    s.output(s.op("Relu", x, name="b", to="q"), [2])
    result = apply(EliminateDuplicates(), s.model())
    assert reasons(result) == [("b", "'q' and the equal 'p' are both outputs of the graph")]


def test_an_output_takes_over_the_first_node() -> None:
    s = Sketch()
    x = s.input("x", [2, 8])
    s.output(s.op("Neg", s.op("Relu", x)), [2, 8])
    s.output(s.op("Relu", x, to="y"), [2, 8])
    model = s.model()
    keeps(EliminateDuplicates(), model, [feed(model)])
    assert ops(model) == ["Relu", "Neg"]


def _constants(a: np.ndarray, b: np.ndarray) -> ir.Model:
    s = Sketch()
    x = s.input("x", [2, 8])
    mul = s.op("Mul", x, s.constant("a", a))
    s.output(s.op("Add", mul, s.constant("b", b)), [2, 8])
    return s.model()


def test_equal_initializers_become_one() -> None:
    k = np.arange(8, dtype=np.float32)
    model = _constants(k, k.copy())
    keeps(EliminateDuplicates(), model, [feed(model)])
    assert list(model.graph.initializers) == ["a"]


def test_initializers_of_other_shape_or_bits_stay() -> None:
    k = np.arange(8, dtype=np.float32)
    for other in (k.reshape(1, 8), np.where(k == 0, np.float32(-0.0), k)):
        model = _constants(k, other)
        before = to_bytes(model)
        assert not apply(EliminateDuplicates(), model).rewrites
        assert to_bytes(model) == before


def test_equal_weights_stay_apart_until_their_norms_are_folded() -> None:
    s = Sketch()
    x = s.input("x", [1, 2, 3, 3])
    kernel = s.rng.standard_normal((4, 2, 1, 1)).astype(np.float32)
    for k in range(2):
        conv = s.op("Conv", x, s.constant(f"w{k}", kernel.copy()))
        params = [s.constant(f"p{k}{i}", s.rng.random(4).astype(np.float32)) for i in range(4)]
        s.output(s.op("BatchNormalization", conv, *params), None)
    assert not apply(EliminateDuplicates(), s.model()).rewrites


def test_default_of_an_input_stays() -> None:
    model = _constants(np.ones(8, np.float32), np.ones(8, np.float32))
    model.graph.inputs.append(model.graph.initializers["b"])
    assert not EliminateDuplicates().run(model, bare_context()).rewrites


def test_runner_catches_a_wrong_merge(monkeypatch) -> None:
    monkeypatch.setattr("passes.eliminate.duplicates.node_key", lambda node: node.op_type)
    s = Sketch()
    x = s.input("x", [2, 8])
    a, b = s.op("LeakyRelu", x, alpha=0.1), s.op("LeakyRelu", x, name="b", alpha=0.2)
    s.output(s.op("Concat", a, b, axis=0), [4, 8])
    assert "at 'b'" in caught(EliminateDuplicates(), s.model())
