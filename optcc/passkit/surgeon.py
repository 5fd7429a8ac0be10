"""A user's onnx-graphsurgeon function as a pass, checked like any other.

```python
import onnx_graphsurgeon as gs
from optcc.passkit.surgeon import graphsurgeon_pass

@graphsurgeon_pass                      # or @graphsurgeon_pass(exactness="bitwise")
def drop_dropout(graph: gs.Graph) -> None:
    ...
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, overload

import onnx_ir as ir

from optcc.errors import ConfigError
from optcc.graph.walk import all_nodes, graphs_of
from optcc.passkit.contract import Exactness, Fact, PassContext, PassResult, Rejection, Rewrite

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

__all__ = ["GraphSurgeonPass", "graphsurgeon_pass"]

Surgeon = Callable[["gs.Graph"], object]

_PROMISE = "__optcc_exactness__"
_SUB_BYTE = frozenset({ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.FLOAT4E2M1})


@overload
def graphsurgeon_pass(function: Surgeon) -> Surgeon: ...
@overload
def graphsurgeon_pass(*, exactness: str) -> Callable[[Surgeon], Surgeon]: ...
def graphsurgeon_pass(
    function: Surgeon | None = None, *, exactness: str = "rounding"
) -> Surgeon | Callable[[Surgeon], Surgeon]:
    """Say what a graphsurgeon function promises about the numbers.

    Args:
        function: Takes a `gs.Graph`; changes it, or returns another one.
        exactness: "bitwise", "rounding" or "lossy".

    Raises:
        ConfigError: There is no such promise.
    """
    promise = _promise(exactness)

    def mark(marked: Surgeon) -> Surgeon:
        setattr(marked, _PROMISE, promise)
        return marked

    return mark if function is None else mark(function)


def _promise(text: str) -> Exactness:
    try:
        return Exactness(text)
    except ValueError:
        known = ", ".join(e.value for e in Exactness)
        what = f"exactness is {text!r}, it must be one of {known}"
        raise ConfigError(what, where="graphsurgeon_pass") from None


class GraphSurgeonPass:
    """Run a graphsurgeon function on the whole graph; metadata is put back afterwards.

    Functions without the decorator promise ROUNDING. The model is left alone, with a reason, where
    graphsurgeon could not carry it: constants of less than a byte per element.

    Args:
        function: The user's.
        name: Of the pass; `surgeon.<name of the function>` by default.
    """

    needs: frozenset[Fact] = frozenset()
    gives: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset({Fact.SHAPES, Fact.CANONICAL})

    def __init__(self, function: Surgeon, name: str | None = None) -> None:
        self.function = function
        self.name = name or f"surgeon.{function.__name__}"
        self.exactness: Exactness = getattr(function, _PROMISE, Exactness.ROUNDING)

    def run(self, model: ir.Model, ctx: PassContext) -> PassResult:
        """Convert, call the function, convert back."""
        narrow = next(_sub_byte(model), None)
        if narrow is not None:
            reason = f"constant {narrow!r} has less than a byte per element; graphsurgeon loses it"
            return PassResult(rejects=[Rejection("", reason)])
        after = self._operated(model)
        if _content(after) == _content(model):
            return PassResult()
        record = Rewrite("", f"the graph as {self.function.__name__} leaves it")
        if not ctx.apply(record, lambda: _replace(model, after)):
            return PassResult()
        return PassResult(rewrites=[record])

    def _operated(self, model: ir.Model) -> ir.Model:
        """Return a new model; what graphsurgeon drops is copied from the one before."""
        import onnx_graphsurgeon as gs

        graph = gs.import_onnx(ir.to_proto(model))
        returned = self.function(graph)
        graph = returned if isinstance(returned, gs.Graph) else graph
        graph.cleanup(remove_unused_graph_inputs=False).toposort()
        result: ir.Model = ir.from_proto(gs.export_onnx(graph, do_type_check=False))
        _put_back(model, result)
        return result


def _content(model: ir.Model) -> object:
    """Return what two models have in common exactly when surgery changed nothing."""
    graph = model.graph
    nodes = {
        tuple(v.name for v in n.outputs): (
            (n.domain, n.op_type, tuple(None if v is None else v.name for v in n.inputs)),
            sorted(str(a) for a in n.attributes.values()),
        )
        for n in graph
    }
    weights = {
        name: (v.const_value.dtype, v.const_value.tobytes())
        for name, v in graph.initializers.items()
        if v.const_value is not None
    }
    ends = [[v.name for v in values] for values in (graph.inputs, graph.outputs)]
    return nodes, weights, ends


def _replace(model: ir.Model, after: ir.Model) -> list[ir.Value]:
    model.graph = after.graph
    model.opset_imports.update(after.opset_imports)
    return []


def _sub_byte(model: ir.Model) -> Iterator[str]:
    for graph in graphs_of(model):
        for value in graph.initializers.values():
            if value.dtype in _SUB_BYTE:
                yield value.name or ""
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type is ir.AttributeType.TENSOR and _tensor(attribute) in _SUB_BYTE:
                    yield node.name or ""


def _tensor(attribute: ir.Attr) -> ir.DataType | None:
    return None if attribute.is_ref() else attribute.as_tensor().dtype


def _put_back(original: ir.Model, result: ir.Model) -> None:
    """Copy metadata by name, and the dims of inputs and outputs, which surgery must not change."""
    known = {n.name: n for n in all_nodes(original.graph)}
    for node in all_nodes(result.graph):
        earlier = known.get(node.name)
        if earlier is not None and earlier.op_type == node.op_type:
            node.metadata_props.update(earlier.metadata_props)
            node.doc_string = node.doc_string or earlier.doc_string
    result.graph.name = original.graph.name
    result.graph.doc_string = original.graph.doc_string
    result.graph.metadata_props.update(original.graph.metadata_props)
    _put_back_types(original.graph, result.graph)


def _put_back_types(original: ir.Graph, result: ir.Graph) -> None:
    for before, after in ((original.inputs, result.inputs), (original.outputs, result.outputs)):
        named: dict[str | None, Any] = {v.name: v for v in before}
        for value in after:
            earlier = named.get(value.name)
            if earlier is not None and earlier.dtype is value.dtype:
                value.shape = earlier.shape
                value.metadata_props.update(earlier.metadata_props)
