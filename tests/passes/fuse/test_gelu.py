from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.graph.io import to_bytes
from optcc.passkit.matcher import Match
from optcc.passkit.testing import bare_context
from passes.eliminate.identity import EliminateIdentity
from passes.fuse.gelu import FuseGelu
from tests.models.disguise import disguise
from tests.models.gelus import DTYPES, ERFS, GATES, TANHS, Arithmetic, gelu
from tests.models.sketch import Sketch
from tests.passes.promise import apply, caught, feed, keeps, ops, reasons

FUSED = ["Neg", "Gelu"]
TAILS = {**{f"erf-{k}": t for k, t in ERFS.items()}, **{f"tanh-{k}": t for k, t in TANHS.items()}}


def _feeds(model: ir.Model) -> list[dict[str, np.ndarray]]:
    return [feed(model, seed=n, N=n) for n in (1, 3)]


def _kind(model: ir.Model) -> str:
    return model.graph[1].attributes.get_string("approximate")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("tail", TAILS)
def test_every_spelling(tail: str, gate: str, dtype: type) -> None:
    model = gelu(TAILS[tail], GATES[gate], dtype=dtype).model()
    keeps(FuseGelu(), model, _feeds(model))
    assert ops(model) == FUSED
    assert model.graph[1].name == "gelu"
    assert _kind(model) == ("none" if tail.startswith("erf") else "tanh")


@pytest.mark.parametrize("dims", [("N", 16), ("N", 4, 16), ("N", 3, 4, 16)])
@pytest.mark.parametrize("constants", [(), (1,), (1, 1)])
def test_ranks(dims: tuple[int | str, ...], constants: tuple[int, ...]) -> None:
    model = gelu(ERFS["div"], GATES["on-sum"], dims=dims, constants=constants).model()
    keeps(FuseGelu(), model, _feeds(model))
    assert ops(model) == FUSED


@pytest.mark.parametrize(
    ("tail", "changed"),
    [
        ("erf-div", {"root": 1.4142}),
        ("erf-mul", {"inverse": 0.7071}),
        ("tanh-sum-pow", {"slope": 0.79788}),
        ("tanh-sum-pow", {"slope": 0.7978846}),
    ],
)
def test_constants_that_are_cut(tail: str, changed: dict[str, float]) -> None:
    model = gelu(TAILS[tail], GATES["on-x"], changed=changed).model()
    keeps(FuseGelu(), model, _feeds(model))
    assert ops(model) == FUSED


@settings(deadline=None, max_examples=60)
@given(
    tail=st.sampled_from(sorted(TAILS)),
    gate=st.sampled_from(sorted(GATES)),
    seed=st.integers(0, 10_000),
)
def test_disguises_are_seen_through(tail: str, gate: str, seed: int) -> None:
    model = disguise(gelu(TAILS[tail], GATES[gate]).model(), seed)
    EliminateIdentity().run(model, bare_context())
    keeps(FuseGelu(), model, _feeds(model))
    assert ops(model) == FUSED


@pytest.mark.parametrize(
    ("tail", "gate", "changed", "reason"),
    [
        ("erf-div", "on-x", {"root": 1.41}, "constant 'root0' is 1.41, Gelu has 1.41421"),
        ("erf-mul", "on-x", {"inverse": 0.7}, "constant 'inverse0' is 0.7, Gelu has 0.707107"),
        ("erf-div", "on-x", {"half": 0.6}, "constant 'half1' is 0.6, Gelu has 0.5"),
        ("erf-div", "on-sum-div", {"two": 3}, "constant 'two2' is 3, Gelu has 2"),
        ("erf-div", "on-sum", {"one": 1.1}, "constant 'one1' is 1.1, Gelu has 1"),
        ("tanh-sum-pow", "on-x", {"cubic": 0.0447}, "constant 'cubic1' is 0.0447, Gelu has 0.04"),
        ("tanh-sum-pow", "on-x", {"slope": 0.8}, "constant 'slope2' is 0.8, Gelu has 0.797885"),
    ],
)
def test_leaves_other_constants_alone(
    tail: str, gate: str, changed: dict[str, float], reason: str
) -> None:
    model = gelu(TAILS[tail], GATES[gate], changed=changed).model()
    before = to_bytes(model)
    [(node, why)] = reasons(apply(FuseGelu(), model))
    assert node == "gelu"
    assert why.startswith(reason)
    assert to_bytes(model) == before


@pytest.mark.parametrize("name", ["half", "one", "offset"])
def test_leaves_two_different_halves_alone(name: str) -> None:
    s = Sketch()
    x, a = s.input("x", [2, 8]), Arithmetic(s)
    half = 0.5 if name != "half" else 0.4
    offset = 0.5 if name != "offset" else 0.4
    tail = a("Mul", a("Erf", a("Div", x, "root")), half)
    s.output(a("Mul", x, a("Add", tail, offset if name != "one" else 1.0)), None)
    [(_, why)] = reasons(apply(FuseGelu(), s.model()))
    assert why.endswith("Gelu has 0.5")


def test_leaves_quick_gelu_alone() -> None:
    s = Sketch()
    x, a = s.input("x", [2, 8]), Arithmetic(s)
    y = a("Mul", x, a("Sigmoid", a("Mul", x, 1.702)))
    y.producer().name = "quick"
    s.output(y, None)
    result = apply(FuseGelu(), s.model())
    assert reasons(result) == [
        ("quick", "it is x * sigmoid(1.702 x), which is up to 0.02 off Gelu")
    ]


def test_says_nothing_about_swish() -> None:
    s = Sketch()
    x, a = s.input("x", [2, 8]), Arithmetic(s)
    s.output(a("Mul", x, a("Sigmoid", a("Mul", x, 1.5))), None)
    s.output(a("Mul", x, a("Sigmoid", x)), None)
    result = apply(FuseGelu(), s.model())
    assert (result.rewrites, result.rejects) == ([], [])


def test_leaves_the_gate_of_another_value_alone() -> None:
    s = Sketch()
    x, a = s.input("x", [2, 8]), Arithmetic(s)
    s.output(GATES["on-sum"](a, a("Abs", x), ERFS["div"](a, x)), None)
    result = apply(FuseGelu(), s.model())
    assert (result.rewrites, result.rejects) == ([], [])


def test_leaves_a_tail_with_another_reader_alone() -> None:
    s = gelu(ERFS["div"], GATES["on-x"])
    erf = next(n for n in s.graph if n.op_type == "Erf")
    s.output(s.op("Relu", erf.outputs[0], name="other"), None)
    [(_, why)] = reasons(apply(FuseGelu(), s.model()))
    assert why == f"value {erf.outputs[0].name!r} is also read by 'other'"


def test_leaves_constants_that_add_dims_alone() -> None:
    model = gelu(ERFS["div"], GATES["on-x"], dims=(16,), constants=(1, 1)).model()
    [(_, why)] = reasons(apply(FuseGelu(), model))
    assert why.endswith("may add dims")


def test_leaves_old_opsets_alone() -> None:
    [(_, why)] = reasons(apply(FuseGelu(), gelu(ERFS["div"], GATES["on-x"], opset=19).model()))
    assert why == "opset 19 has no Gelu"


def test_leaves_double_precision_alone() -> None:
    """Runtimes have no such kernel."""
    s = Sketch()
    x = s.op("Cast", s.input("x", [2, 6]), to_=ir.DataType.DOUBLE.value)
    a = Arithmetic(s, np.float64)
    s.output(s.op("Cast", GATES["on-x"](a, x, ERFS["div"](a, x)), to_=1), None)
    [(_, why)] = reasons(apply(FuseGelu(), s.model()))
    assert why == "the type of 'cast0_out' is not float32 or narrower"


class OtherKind(FuseGelu):
    def rewrite(self, m: Match, graph: ir.Graph) -> Sequence[ir.Value]:
        [y] = super().rewrite(m, graph)
        node = y.producer()
        exact = node.attributes.get_string("approximate") == "none"
        node.attributes["approximate"] = ir.AttrString("approximate", "tanh" if exact else "none")
        return [y]


class AnyConstant(FuseGelu):
    def check(self, m: Match) -> None:
        return None


@pytest.mark.parametrize("tail", ["erf-div", "tanh-sum-pow"])
def test_runner_catches_the_other_kind(tail: str) -> None:
    model = gelu(TAILS[tail], GATES["on-x"], dims=(8, 64)).model()
    assert "'fuse.gelu' broke its promise at 'gelu'" in caught(OtherKind(), model)


@pytest.mark.parametrize(
    ("tail", "changed"),
    [("erf-div", {"root": 1.41}), ("tanh-sum-pow", {"cubic": 0.05}), ("erf-mul", {"half": 0.51})],
)
def test_runner_catches_wrong_constants(tail: str, changed: dict[str, float]) -> None:
    model = gelu(TAILS[tail], GATES["on-x"], dims=(8, 64), changed=changed).model()
    assert "'fuse.gelu' broke its promise at 'gelu'" in caught(AnyConstant(), model)
