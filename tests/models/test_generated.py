from __future__ import annotations

import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from optcc.graph.io import check, to_bytes
from optcc.graph.lint import lint
from optcc.graph.signature import signature_of
from optcc.runtime.session import Session
from tests.models.generated import generate, random_feeds
from tests.models.generated_kinds import KINDS

SEEDS = range(140)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_model_is_valid_and_runs_with_finite_results(seed):
    made = generate(seed)
    assert check(made.model) == []
    assert lint(made.model, signature_of(made.model)) == []
    session = Session(to_bytes(made.model))
    for feed in random_feeds(made.model, 8, seed):
        for name, array in session.run(feed).items():
            assert np.isfinite(array.astype(np.float64)).all(), (made.label, name)


def test_the_kinds_types_and_shapes_are_all_there():
    made = [generate(seed) for seed in SEEDS]
    assert {m.kind for m in made} == set(KINDS)
    assert {m.dtype for m in made} == {"float32", "float16", "float64"}
    assert sum(m.dtype == "float32" for m in made) > len(made) / 2
    assert any(len(m.model.graph.outputs) > 2 for m in made)
    dims = [m.model.graph.inputs[0].shape[0] for m in made]
    assert {isinstance(d, int) for d in dims} == {True, False}
    ops = {n.op_type for m in made for n in m.model.graph.all_nodes()}
    wanted = {"BatchNormalization", "LayerNormalization", "If", "Erf", "Gelu", "Softmax", "Split"}
    assert ops >= wanted | {"Pad", "ConvTranspose", "Where", "Shape", "AveragePool", "MaxPool"}


def test_the_bytes_follow_from_the_seed_in_any_process():
    code = (
        "from hashlib import sha256; from optcc.graph.io import to_bytes;"
        "from tests.models.generated import generate;"
        "print(sha256(b''.join(to_bytes(generate(s).model) for s in range(14))).hexdigest())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": "."},
    )
    own = sha256(b"".join(to_bytes(generate(s).model) for s in range(14))).hexdigest()
    assert told.stdout.strip() == own
