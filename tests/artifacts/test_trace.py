import json
from pathlib import Path

import numpy as np
import pytest

from optcc.artifacts.trace import TraceWriter


def written(path: Path, **facts: object) -> str:
    with TraceWriter(path) as trace:
        trace.emit("rewrite", **facts)
    return path.read_text(encoding="utf-8")


def test_one_line_per_event_with_sorted_facts(tmp_path):
    with TraceWriter(tmp_path / "trace.jsonl") as trace:
        trace.emit("pass", name="fuse.x")
        trace.emit("reject", reason="größer", node="conv")
        assert trace.events == 2
    lines = (tmp_path / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines == [
        '{"event":"pass","name":"fuse.x"}',
        '{"event":"reject","node":"conv","reason":"größer"}',
    ]


def test_order_of_facts_and_sets_does_not_show(tmp_path):
    one = written(tmp_path / "a", x=1, y={"b", "a", "c"}, z={"k": 1, "j": 2})
    other = written(tmp_path / "b", z={"j": 2, "k": 1}, y={"c", "b", "a"}, x=1)
    assert one == other


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.arange(3), [0, 1, 2]),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ((1, 2.5, None), [1, 2.5, None]),
        (Path("/home/someone/model.onnx"), "model.onnx"),
        (ValueError("odd"), "odd"),
    ],
)
def test_every_value_becomes_json(tmp_path, value, expected):
    assert json.loads(written(tmp_path / "t", value=value))["value"] == expected


def test_a_second_close_does_nothing(tmp_path):
    trace = TraceWriter(tmp_path / "t")
    trace.close()
    trace.close()
