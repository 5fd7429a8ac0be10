"""Which rooms may know which: the rules hold for every import statement of the project."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.architecture.imports import ROOT, Import, imports, read

LAYERS = (
    ("errors", "progress"),
    ("passkit", "graph", "targets", "config"),
    ("runtime",),
    (
        "frontends",
        "pipeline",
        "verify",
        "calibrate",
        "backends",
        "measure",
        "report",
        "artifacts",
    ),
    ("driver",),
    ("cli",),
    ("__main__",),
)
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}

SIDEWAYS = {
    ("passkit", "graph"),
    ("config", "graph"),
    ("pipeline", "verify"),
    ("calibrate", "verify"),
}
"""Pairs inside one layer that may meet, in this direction."""

UPWARD = {("optcc.passkit.testing", "runtime")}
"""The bench for pass authors runs models; nothing in the product imports it."""

FROM_PASSES = ("optcc.passkit", "optcc.graph", "optcc.errors", "passes")

HOMES = {
    "onnxruntime": ("optcc.runtime", "optcc.backends.onnxruntime"),
    "onnx": ("optcc.graph.io",),
    "onnx_graphsurgeon": ("optcc.passkit.surgeon",),
    "google": ("optcc.graph.io",),
    "torch": ("optcc.frontends", "optcc.trainable"),
    "tensorrt": ("optcc.backends",),
    "tensorrt_rtx": ("optcc.backends",),
    "openvino": ("optcc.backends",),
    "modelopt": ("optcc.trainable",),
    "typer": ("optcc.cli",),
    "rich": ("optcc.cli", "optcc.report"),
    "jinja2": ("optcc.report",),
}
"""Third-party packages that only these modules may import."""

IN_FUNCTIONS = ("onnxruntime", "torch", "tensorrt", "tensorrt_rtx", "openvino", "modelopt")


def inside(name: str, homes: Iterable[str]) -> bool:
    return any(name == home or name.startswith(f"{home}.") for home in homes)


def room(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "optcc" and len(parts) > 1 else None


def layer_breach(found: Import) -> bool:
    own, other = room(found.module), room(found.name)
    if own is None or other is None or own == other or own not in RANK:
        return False
    if (found.module, other) in UPWARD:
        return False
    if RANK[own] == RANK[other]:
        return (own, other) not in SIDEWAYS and found.where != "types"
    return RANK[own] < RANK[other]


def passes_breach(found: Import) -> bool:
    if not found.module.startswith("passes") or not found.name.startswith("optcc"):
        return False
    types_only = found.where == "types" and inside(found.name, ["optcc.targets"])
    return not inside(found.name, FROM_PASSES) and not types_only


def home_breach(found: Import) -> bool:
    top = found.name.split(".")[0]
    if top not in HOMES:
        return False
    early = top in IN_FUNCTIONS and found.where == "top"
    return early or not inside(found.module, HOMES[top])


def test_every_room_has_a_place_in_the_layers() -> None:
    rooms = {room(found.module) for found in imports()} - {None}
    assert rooms <= set(RANK)


def test_no_import_goes_up_or_sideways() -> None:
    assert [str(found) for found in imports() if layer_breach(found)] == []


def test_passes_know_passkit_and_graph_only() -> None:
    assert [str(found) for found in imports() if passes_breach(found)] == []


def test_optcc_never_imports_passes() -> None:
    found = [i for i in imports() if i.module.startswith("optcc") and inside(i.name, ["passes"])]
    assert [str(i) for i in found] == []


def test_libraries_stay_in_their_homes() -> None:
    assert [str(found) for found in imports() if home_breach(found)] == []


@pytest.mark.parametrize(
    ("path", "text", "breach"),
    [
        ("optcc/graph/x.py", "from optcc.pipeline.plan import Plan", layer_breach),
        ("optcc/measure/x.py", "import optcc.report.schema", layer_breach),
        ("optcc/report/x.py", "def f():\n    from optcc.driver import compile_model", layer_breach),
        ("passes/fuse/x.py", "from optcc.runtime.session import Session", passes_breach),
        ("passes/fuse/x.py", "from optcc.targets.catalog import Target", passes_breach),
        ("optcc/runtime/x.py", "import onnxruntime as ort", home_breach),
        ("optcc/verify/x.py", "def f():\n    import onnxruntime", home_breach),
        ("optcc/graph/x.py", "import onnx.helper", home_breach),
        ("optcc/backends/x.py", "import tensorrt_rtx", home_breach),
    ],
)
def test_the_rules_bite(path: str, text: str, breach) -> None:
    assert [breach(found) for found in read(text, ROOT / path)] == [True]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("optcc/report/x.py", "if TYPE_CHECKING:\n    from optcc.measure.gates import Gate"),
        ("passes/fuse/x.py", "if TYPE_CHECKING:\n    from optcc.targets.catalog import Target"),
        ("optcc/runtime/x.py", "def f():\n    import onnxruntime"),
        ("optcc/driver/x.py", "from optcc.errors import OptccError"),
    ],
)
def test_the_rules_leave_good_imports_alone(path: str, text: str) -> None:
    (found,) = read(text, ROOT / path)
    assert not any(rule(found) for rule in (layer_breach, passes_breach, home_breach))
