from __future__ import annotations

from optcc.pipeline.lineage import node_names
from tests.models.regions import node, text

CHAIN = "g (float[4] x) => (float[4] y) { [a] p = Neg(x) [b] q = Relu(p) [c] y = Add(q, p) }"


def test_the_nodes_of_a_region_are_named_from_its_end() -> None:
    model = text(CHAIN)
    c = node(model, "c")
    assert node_names(c.outputs, model.graph.inputs) == ("c", "b", "a")
    assert node_names(c.outputs, node(model, "a").outputs) == ("c", "b")


def test_a_region_that_nothing_bounds_is_not_named() -> None:
    steps = "".join(f"[n{k}] v{k + 1} = Neg(v{k}) " for k in range(40))
    model = text(f"g (float[4] v0) => (float[4] v40) {{ {steps} }}")
    assert node_names(model.graph.outputs, model.graph.inputs) == ()
    assert node_names(model.graph.outputs, [node(model, "n37").outputs[0]]) == ("n39", "n38")
