"""Data in every documented form, and refusals by name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optcc.calibrate.dataset import (
    Dataset,
    find_by_convention,
    from_feeds,
    open_source,
    overlap,
    split,
)
from optcc.config.shapes import InputShapes, ShapeProfile
from optcc.errors import ConfigError, ExitCode
from optcc.graph.signature import Signature, TensorSpec

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def signature(*specs: tuple[str, ir.DataType, tuple[int | str | None, ...] | None]) -> Signature:
    return Signature(tuple(TensorSpec(*s) for s in specs), ())


IMAGE = signature(("x", FLOAT, ("batch", 3, 4, 4)))
FIXED = signature(("x", FLOAT, (4, 3)))
RECURRENT = signature(
    ("input", FLOAT, (None, None)), ("state", FLOAT, (2, None, 8)), ("sr", INT64, ())
)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 4, 4)).astype(np.float32)


def calib(path: Path, sig: Signature, **options: object) -> Dataset:
    return open_source(str(path), signature=sig, kind="calib", **options)  # type: ignore[arg-type]


def save(folder: Path, name: str = "d.npz", **arrays: np.ndarray) -> Path:
    path = folder / name
    np.savez(path, **arrays)
    return path


def test_npz_is_split_and_the_last_incomplete_batch_counts(tmp_path):
    x = images(37)
    data = calib(save(tmp_path, x=x), IMAGE)
    assert [b.count for b in data.batches()] == [16, 16, 5]
    assert np.array_equal(np.concatenate([f["x"] for f in data]), x)
    assert data.samples == len(data) == 37
    assert data.source == "d.npz"
    assert data.shapes["x"] == ((16, 3, 4, 4), (5, 3, 4, 4), (16, 3, 4, 4))


def test_a_fixed_batch_is_filled_by_repeating_and_says_how_many_count(tmp_path):
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    batches = list(calib(save(tmp_path, x=x), FIXED).batches())
    assert [b.count for b in batches] == [4, 2]
    assert np.array_equal(batches[1].feed["x"], x[[4, 5, 4, 5]])


def test_a_missing_batch_axis_is_added(tmp_path):
    data = calib(save(tmp_path, x=images(1)[0]), IMAGE)
    assert [f["x"].shape for f in data] == [(1, 3, 4, 4)]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_memory_order_and_compression_do_not_matter(tmp_path, order, write):
    x = images(21)
    write(tmp_path / "d.npz", x=np.asarray(x, order=order))
    read = np.concatenate([f["x"] for f in calib(tmp_path / "d.npz", IMAGE)])
    assert np.array_equal(read, x)


def test_foreign_byte_order_is_read(tmp_path):
    x = images(3)
    feed = next(iter(calib(save(tmp_path, x=x.astype(">f4")), IMAGE)))
    assert feed["x"].dtype == np.float32
    assert np.array_equal(feed["x"], x)


def test_bfloat16_survives_npz(tmp_path):
    sig = signature(("x", ir.DataType.BFLOAT16, ("n", 2)))
    x = np.arange(6).reshape(3, 2).astype(ir.DataType.BFLOAT16.numpy())
    feed = next(iter(calib(save(tmp_path, x=x), sig)))
    assert feed["x"].dtype == x.dtype
    assert np.array_equal(feed["x"], x)


def test_labels_are_ignored_by_calib_and_read_by_eval(tmp_path):
    path = save(tmp_path, x=images(5), labels=np.arange(5))
    assert calib(path, IMAGE).labels is None
    data = open_source(str(path), signature=IMAGE, kind="eval", batch=2)
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 2, 3, 4]
    assert [b.labels.tolist() for b in data.batches()] == [[0, 1], [2, 3], [4]]


def test_an_input_called_labels_is_an_input(tmp_path):
    sig = signature(("labels", INT64, ("n",)))
    data = open_source(str(save(tmp_path, labels=np.arange(3))), signature=sig, kind="eval")
    assert data.labels is None
    assert next(iter(data))["labels"].tolist() == [0, 1, 2]


def test_labels_of_another_length_are_refused(tmp_path):
    path = save(tmp_path, x=images(5), labels=np.arange(4))
    with pytest.raises(ConfigError, match=r"labels in d.npz have shape \(4,\) for 5 samples"):
        open_source(str(path), signature=IMAGE, kind="eval")


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"y": images(2)}, r"has no array for input 'x' \(it holds y\)"),
        ({"x": images(2), "y": images(2)}, "array 'y' in d.npz is no input"),
        ({"x": images(2).astype(np.float64)}, "is float64, the model wants float32"),
        ({"x": np.zeros((2, 3, 4, 5), np.float32)}, "is 2x3x4x5, the model wants batchx3x4x4"),
        ({"x": np.float32(1)}, "is a scalar"),
        ({"x": images(0)}, "holds no sample"),
        ({"x": np.full((2, 3, 4, 4), np.nan, np.float32)}, r"holds NaN \(first at \[0, 0, 0, 0\]"),
        ({"x": np.full((2, 3, 4, 4), -np.inf, np.float32)}, "holds Inf"),
    ],
)
def test_wrong_data_is_refused_by_name(tmp_path, arrays, text):
    with pytest.raises(ConfigError, match=text) as caught:
        calib(save(tmp_path, **arrays), IMAGE)
    assert caught.value.exit_code == ExitCode.CONFIG


def test_inputs_that_differ_in_samples_are_refused(tmp_path):
    sig = signature(("a", FLOAT, ("n", 2)), ("b", INT64, ("n",)))
    path = save(tmp_path, a=np.ones((4, 2), np.float32), b=np.arange(3))
    with pytest.raises(ConfigError, match=r"differ in samples \(a: 4, b: 3\)"):
        calib(path, sig)


def test_pickled_objects_are_never_loaded(tmp_path):
    path = save(tmp_path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ConfigError, match="holds Python objects"):
        calib(path, IMAGE)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as npz"):
        calib(tmp_path / "d.npz", IMAGE)


def test_a_damaged_array_is_refused(tmp_path):
    path = save(tmp_path, x=images(64))
    raw = bytearray(path.read_bytes())
    raw[400] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match="cannot be read as npz"):
        calib(path, IMAGE)


def test_a_missing_path_and_a_wrong_kind_of_file_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--calib .*gone.npz does not exist"):
        calib(tmp_path / "gone.npz", IMAGE)
    (tmp_path / "d.txt").write_text("x")
    with pytest.raises(ConfigError, match="is neither an npz nor a folder"):
        calib(tmp_path / "d.txt", IMAGE)


@pytest.mark.parametrize("sig", [RECURRENT, signature(("v", FLOAT, (40,)))])
def test_one_npz_is_refused_for_inputs_without_a_batch(tmp_path, sig):
    arrays = {s.name: np.ones((3, 4), np.float32) for s in sig.inputs}
    with pytest.raises(ConfigError, match="share no batch axis") as caught:
        calib(save(tmp_path, **arrays), sig)
    assert "folder" in str(caught.value.hint)


def test_folder_is_read_in_name_order_one_complete_feed_each(tmp_path):
    for k in (2, 0, 1):
        feed = {"input": np.full((1, 6), k, np.float32), "state": np.ones((2, 1, 8), np.float32)}
        save(tmp_path, f"{k}.npz", sr=np.int64(16000), labels=np.int64(k), **feed)
    data = open_source(str(tmp_path), signature=RECURRENT, kind="eval")
    assert [int(f["input"][0, 0]) for f in data] == [0, 1, 2]
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 2]
    assert next(iter(data))["sr"].shape == ()
    assert data.source == f"{tmp_path.name}/"


def test_folder_feeds_keep_their_own_batch(tmp_path):
    save(tmp_path, "0.npz", x=images(3))
    save(tmp_path, "1.npz", x=images(2, 1))
    data = calib(tmp_path, IMAGE)
    assert [b.count for b in data.batches()] == [3, 2]
    assert data.samples == 5


def test_folder_refuses_a_wrong_fixed_batch_naming_the_file(tmp_path):
    save(tmp_path, "0.npz", x=np.ones((3, 3), np.float32))
    with pytest.raises(ConfigError, match=r"input 'x' in 0.npz is 3x3, the model wants 4x3"):
        calib(tmp_path, FIXED)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is empty: no sample"):
        calib(tmp_path, IMAGE)


def test_folder_where_only_some_feeds_carry_labels_is_refused(tmp_path):
    save(tmp_path, "0.npz", x=images(1), labels=np.arange(1))
    save(tmp_path, "1.npz", x=images(1))
    with pytest.raises(ConfigError, match="only 1 of 2 feeds"):
        open_source(str(tmp_path), signature=IMAGE, kind="eval")


MODULE = """
import numpy as np
def feeds():
    for k in range(3):
        yield {"x": np.full((2, 3, 4, 4), k, np.float32)}
def labelled():
    for feed in feeds():
        yield feed, [1, 2]
def broken():
    yield {"x": np.ones((2, 3, 4, 4), np.float32)}
    raise KeyError("gone")
def listed():
    return [[1, 2]]
def nothing():
    return []
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "optcc_feed_module.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "optcc_feed_module", raising=False)
    return tmp_path


def call(module: Path, name: str, kind: str = "calib") -> Dataset:
    text = f"optcc_feed_module:{name}"
    return open_source(text, signature=IMAGE, kind=kind, search=[module])  # type: ignore[arg-type]


def test_callable_is_iterated_again_each_time(module):
    data = call(module, "feeds")
    assert data.samples == 6
    assert [f["x"].flat[0] for f in data] == [f["x"].flat[0] for f in data] == [0, 1, 2]
    assert str(module) not in sys.path


def test_callable_may_yield_labels(module):
    data = call(module, "labelled", "eval")
    assert data.labels is not None
    assert data.labels.tolist() == [1, 2] * 3
    assert call(module, "labelled").labels is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken", "optcc_feed_module:broken raised KeyError"),
        ("listed", "feed 0 of optcc_feed_module:listed is list"),
        ("nothing", "holds no sample"),
        ("number", "is int, it must be callable"),
        ("missing", "cannot be loaded"),
    ],
)
def test_a_wrong_callable_is_refused(module, name, text):
    with pytest.raises(ConfigError, match=text):
        call(module, name)


def test_a_missing_module_is_refused():
    with pytest.raises(ConfigError, match="--calib no_such_module:feeds cannot be loaded"):
        open_source("no_such_module:feeds", signature=IMAGE, kind="calib")


def test_random_is_seeded_marked_red_and_only_for_calibration():
    first = open_source("random", signature=IMAGE, kind="calib", seed=3)
    again = open_source("random", signature=IMAGE, kind="calib", seed=3)
    other = open_source("random", signature=IMAGE, kind="calib", seed=4)
    assert first.random
    assert [f.severity for f in first.findings] == ["red"]
    assert first.digests.tolist() == again.digests.tolist() != other.digests.tolist()
    with pytest.raises(ConfigError, match="--eval is 'random'"):
        open_source("random", signature=IMAGE, kind="eval")


def test_random_needs_the_size_of_free_dims():
    sig = signature(("ids", INT64, ("batch", "seq")))
    with pytest.raises(ConfigError, match="free dim of input 'ids'") as caught:
        open_source("random", signature=sig, kind="calib")
    assert "--shapes 'ids:" in str(caught.value.hint)
    profile = ShapeProfile((InputShapes(name="ids", min=(1, 4), opt=(2, 4), max=(4, 4)),), "x")
    data = open_source("random", signature=sig, kind="calib", profile=profile)
    assert {f["ids"].shape for f in data} == {(2, 4)}
    assert {int(v) for f in data for v in f["ids"].flat} == {0, 1}


def test_findings_name_what_is_doubtful(tmp_path):
    sig = signature(("x", FLOAT, ("n", 2)), ("m", INT64, ("n", 2)))
    x = np.repeat(np.arange(5, dtype=np.float32), 4)[:, None] * np.ones((1, 2), np.float32)
    data = calib(save(tmp_path, x=x, m=np.ones((20, 2), np.int64)), sig)
    assert [f.code for f in data.findings] == [
        "few-samples",
        "duplicate-samples",
        "constant-input",
    ]
    assert "'m' is 1 in every" in data.findings[2].message
    assert calib(save(tmp_path, x=images(40)), IMAGE).findings == ()


def test_convention_looks_beside_the_model_then_in_the_working_folder(tmp_path):
    model, cwd = tmp_path / "models" / "net.onnx", tmp_path / "work"
    found, places = find_by_convention(model, cwd)
    assert found is None
    assert [p.relative_to(tmp_path).as_posix() for p in places] == [
        "models/calibration_data/net.npz",
        "models/calibration_data/net",
        "work/calibration_data/net.npz",
        "work/calibration_data/net",
    ]
    places[3].mkdir(parents=True)
    assert find_by_convention(model, cwd)[0] == places[3]
    places[0].parent.mkdir(parents=True)
    save(places[0].parent, "net.npz", x=images(1))
    assert find_by_convention(model, cwd)[0] == places[0]
    assert len(find_by_convention(cwd / "net.onnx", cwd)[1]) == 2


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("split")


@settings(max_examples=30, deadline=None)
@given(samples=st.integers(1, 40), share=st.floats(0.05, 0.9), batch=st.integers(1, 9))
def test_split_parts_are_disjoint_and_complete(one_folder, samples, share, batch):
    x = np.arange(samples * 3, dtype=np.float32).reshape(samples, 3)
    path = save(one_folder, x=x, labels=np.arange(samples))
    sig = signature(("x", FLOAT, ("n", 3)))
    whole = open_source(str(path), signature=sig, kind="eval", batch=batch)
    used, aside = split(whole, share)
    parts = [used] if aside is None else [used, aside]
    rows = [np.concatenate([b.feed["x"][: b.count] for b in p.batches()]) for p in parts]
    together = np.concatenate(rows)
    assert sorted(together[:, 0].tolist()) == x[:, 0].tolist()
    assert sum(p.samples for p in parts) == samples
    for part, data in zip(parts, rows, strict=True):
        assert part.samples >= 1
        assert part.labels is not None
        assert (part.labels * 3 == data[:, 0]).all()
    assert (aside is None) == (samples == 1)
    if aside is not None:
        assert overlap(used, aside) == 0


def test_split_spreads_over_the_data_and_splits_feeds_whole():
    feeds = [{"x": images(2, k)} for k in range(10)]
    used, aside = split(from_feeds(feeds, IMAGE), 0.3)
    assert aside is not None
    assert (used.samples, aside.samples) == (14, 6)
    kept = [k for k, f in enumerate(feeds) if any(np.array_equal(f["x"], a["x"]) for a in aside)]
    assert max(np.diff(kept)) <= 4
    assert overlap(aside, from_feeds(feeds, IMAGE)) == 6


def test_split_refuses_a_share_of_nothing_or_all():
    with pytest.raises(ConfigError, match=r"is 1\.0"):
        split(from_feeds([{"x": images(2)}], IMAGE), 1.0)


def test_a_large_file_is_read_in_blocks(tmp_path):
    """Peak traced memory stays far below the size of the array."""
    import tracemalloc

    sig = signature(("x", FLOAT, ("n", 1000)))
    path = save(tmp_path, x=np.ones((8000, 1000), np.float32))
    tracemalloc.start()
    data = calib(path, sig)
    total = sum(float(f["x"].sum()) for f in data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 8_000_000
    assert peak < 8 << 20
