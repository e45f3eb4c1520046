"""What a result is when it is given back: its type, its bytes, and that nobody else's copy changes with it."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.task_stories import key, store_of

from safepoint.errors import GraphError, UsageError
from safepoint.tasks import values
from safepoint.tasks.jobs import FILE, NPY, PICKLE, Record
from safepoint.tasks.put import Writer
from safepoint.tasks.saved import LostValue, Store


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with store_of(tmp_path).held() as store:
        yield store


@pytest.fixture
def writer(store: Store) -> Any:
    writer = store.writer("w")
    yield writer
    writer.close()


def put(writer: Writer, value: Any, name: str = "v", scratch: str = "", kept: bool = True) -> Record:
    return writer.put(Record(name, key(name), (), False, kept=kept), values.encode(value, scratch))


def arrays() -> dict[str, Any]:
    plain = np.arange(24.0).reshape(2, 3, 4)
    return {
        "C order": plain, "Fortran order": np.asfortranarray(plain), "strided": plain[:, ::2, 1:], "0-d": np.array(3.5),
        "empty": np.zeros((0, 3), "i4"), "empty Fortran": np.zeros((3, 0, 2), order="F"), "bool": plain > 3,
        "big-endian": plain.astype(">f4"), "complex": plain * 1j, "text": np.array(["a", "äö"]),
        "bytes": np.array([b"a"]),
        "no bytes": np.zeros(3, "S0"), "time": np.array(["2026-01-01"], "M8[s]"), "span": np.array([3], "m8[us]"),
        "structured": np.array([(1, 2.5)], [("a", "i4"), ("b", ">f8", (2,))]), "void": np.zeros(2, "V5"),
        "aligned": np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
        "long double": np.ones(2, np.longdouble), "large": np.arange(20_000.0),
        "large strided": np.arange(40_000.0)[::2],
        "large Fortran": np.asfortranarray(np.arange(20_000.0).reshape(100, 200)), "half": np.ones(2, "f2"),
        "reversed": plain[::-1], "read-only": np.broadcast_to(np.arange(3), (4, 3)),
    }  # fmt: skip


@pytest.mark.parametrize("which", arrays())
def test_an_array_comes_back_with_its_type_shape_order_and_bytes(store: Store, writer: Writer, which: str) -> None:
    value = arrays()[which]
    record = put(writer, value)
    assert record.outputs[0].kind == NPY
    found = store.value(record.reference())
    assert (type(found), found.dtype, found.shape, repr(found.tolist())) == (
        np.ndarray,
        value.dtype,
        value.shape,
        repr(value.tolist()),
    )
    assert which == "aligned" or found.tobytes() == value.tobytes()
    if value.flags.f_contiguous or value.flags.c_contiguous:
        assert found.flags.f_contiguous == value.flags.f_contiguous
    assert found.flags.writeable and found.flags.aligned
    alone = np.load(io.BytesIO(bytes(store.bytes(record.reference()))))  # anybody can read it
    assert (alone.dtype, alone.shape, repr(alone.tolist())) == (value.dtype, value.shape, repr(value.tolist()))


class Subclass(np.ndarray):  # type: ignore[type-arg]
    pass


PICKLED = {
    "objects": np.array([1, "two", None], object), "an object in a structure": np.array([(1,)], [("a", object)]),
    "a subclass": np.arange(3).view(Subclass), "masked": np.ma.masked_array([1, 2], [True, False]),
    "metadata": np.zeros(2, np.dtype("f8", metadata={"unit": "m"})), "no latin-1": np.zeros(1, [("😀", "i4")]),
    "a scalar of numpy": np.float32(1.5), "a time of numpy": np.datetime64("2026-01-01"), "a set": {1, 2},
    "a list of arrays": [np.arange(3), np.arange(30_000)], "None": None, "a text": "ä\ud800",
    "a dict of numbers": {1: 2}, "an empty dict": {}, "a dict with an empty name": {"": 1},
    "a mixed dict": {"a": 1, 2: 3}, "an exception": ValueError(1),
}  # fmt: skip


@pytest.mark.parametrize("which", PICKLED)
def test_all_else_is_pickled_and_comes_back_as_it_was(store: Store, writer: Writer, which: str) -> None:
    value = PICKLED[which]
    record = put(writer, value)
    assert [output.kind for output in record.outputs] == [PICKLE] and not record.named
    found = store.value(record.reference())
    assert type(found) is type(value) and repr(found) == repr(value)


def test_a_type_of_strings_that_npy_does_not_know_is_pickled(store: Store, writer: Writer) -> None:
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy before 2.0 has no StringDType")
    value = np.array(["a", "bcd"], np.dtypes.StringDType())
    record = put(writer, value)
    assert record.outputs[0].kind == PICKLE and (store.value(record.reference()) == value).all()


@pytest.mark.parametrize("size", [3, 20_000])
def test_a_dict_makes_named_outputs_small_and_large(store: Store, writer: Writer, size: int) -> None:
    value = {"left": np.arange(size), "äö /..": "text", "n": 3}
    record = put(writer, value)
    assert record.named and [output.name for output in record.outputs] == list(value)
    assert bool(record.place.journal) is (size == 3)
    whole = store.value(record.reference())
    assert list(whole) == list(value) and (whole["left"] == value["left"]).all() and whole["n"] == 3
    assert store.value(record.reference("äö /..")) == "text"
    assert len({record.digest(), *(record.digest(name) for name in value)}) == 4
    with pytest.raises(GraphError, match="vertex v has no output 'right': it has left"):
        record.reference("right")
    with pytest.raises(GraphError, match="vertex w has no output 'left'"):
        put(writer, 3, "w").digest("left")


def test_the_digest_of_equal_bytes_is_equal_and_of_others_is_not() -> None:
    def digest(value: Any) -> str:
        return values.encode(value)[0].digest

    one = np.arange(6.0)
    assert digest(one) == digest(one.copy()) == digest(np.arange(12.0)[::2] / 2)
    assert (
        len({digest(v) for v in (one, one.astype("f4"), one.reshape(2, 3), one + 1, list(one), 1, 1.0, True, "1")}) == 9
    )


def test_each_gets_a_copy_of_its_own(store: Store, writer: Writer) -> None:
    for name, size in (("small", 5), ("large", 20_000)):
        reference = put(writer, np.zeros(size), name).reference()
        store.value(reference)[:] = 7
        assert not store.value(reference).any()


def test_a_huge_array_is_mapped_read_only(store: Store, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAPPED", 100_000)
    value = np.asfortranarray(np.arange(20_000.0).reshape(100, 200))
    record = put(writer, {"a": value})
    found = store.value(record.reference("a"))
    assert (found == value).all() and not found.flags.writeable and type(found) is np.ndarray
    assert values.encode(found)[0].digest == record.outputs[0].digest
    path = Path(store.path(record.reference("a")))
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    with pytest.raises(LostValue, match="output a of vertex v cannot be given"):
        store.value(record.reference("a"))


def test_a_file_below_scratch_is_moved_in_and_cannot_be_written(store: Store, writer: Writer) -> None:
    scratch = writer.scratch()
    deep = Path(scratch, "a", "b")
    deep.mkdir(parents=True)
    (deep / "x.fits").write_bytes(b"fits")
    (Path(scratch) / "x.fits").write_bytes(b"other")
    (Path(scratch) / "junk").write_text("left")
    record = put(writer, {"one": deep / "x.fits", "two": Path(scratch) / "x.fits", "n": 3}, scratch=scratch)
    writer.drop(scratch)
    assert [output.kind for output in record.outputs] == [FILE, FILE, PICKLE]
    found = store.value(record.reference())
    assert (found["one"].read_bytes(), found["two"].read_bytes(), found["n"]) == (b"fits", b"other", 3)
    assert found["one"].name == "x.fits" and not found["one"].stat().st_mode & 0o222
    assert not [name for name in os.listdir(store.directory) if name.startswith(("stage-", "gone-"))]
    os.chmod(found["one"], 0o644)
    found["one"].write_bytes(b"FITS")
    with pytest.raises(LostValue, match="output one of vertex v"):
        store.value(record.reference("one"))


def test_a_directory_below_scratch_is_kept_with_what_is_in_it(store: Store, writer: Writer) -> None:
    scratch = writer.scratch()
    top = Path(scratch, "tree")
    (top / "empty").mkdir(parents=True)
    (top / "f").write_text("1")
    record = put(writer, {"tree": top, "f": top / "f"}, scratch=scratch)
    found = store.value(record.reference())
    assert sorted(os.listdir(found["tree"])) == ["empty", "f"] and found["f"].read_text() == "1"
    os.rmdir(found["tree"] / "empty")
    with pytest.raises(LostValue):
        store.value(record.reference("tree"))


def test_a_path_that_would_lead_nowhere_later_is_refused(tmp_path: Path, writer: Writer) -> None:
    scratch = writer.scratch()
    inside, outside = Path(scratch, "f"), tmp_path / "g"
    for path in (inside, outside):
        path.write_text("1")
    (Path(scratch) / "link").symlink_to(outside)
    for value in (
        [inside],
        {"a": {1: inside}},
        Path(scratch, "none"),
        Path(scratch, "link"),
        {"a": Path(scratch, "link")},
    ):
        with pytest.raises(UsageError, match="scratch directory"):
            values.encode(value, scratch)
    assert values.encode(outside, scratch)[0].kind == PICKLE  # the path itself, as any other value


@pytest.mark.parametrize("value", [lambda: 1, {"a": sys.stdin}, iter([]).__iter__, [open]])
def test_what_cannot_be_pickled_is_told(value: Any) -> None:
    try:
        pickle.dumps(value, 5)
    except Exception:
        with pytest.raises(UsageError, match=r"cannot be pickled: "):
            values.encode(value)


def test_what_is_not_kept_is_there_until_the_driver_leaves(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    with store.held():
        writer = store.writer("w")
        record = put(writer, np.arange(10), kept=False)
        assert (store.value(record.reference()) == np.arange(10)).all() and not record.kept
        again = put(writer, np.arange(11), kept=False)  # another attempt: its record is the newer one
        assert len(store.value(again.reference())) == 11
        writer.close()
        assert not store.records()[record.key].kept
    assert store.records()[record.key].digest() == record.digest()
    with pytest.raises(LostValue) as caught:
        store.value(record.reference())
    assert (caught.value.vertex, caught.value.key) == ("v", record.key)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with store.held():
        writer = store.writer("w")
        kept = put(writer, np.arange(10))
        writer.close()
    assert store.records()[record.key] == kept


def test_a_reference_whose_journal_was_rewritten_is_still_good(store: Store, writer: Writer) -> None:
    record = put(writer, {"a": 1, "b": "two"})
    writer.close()
    store.clean(used=[record.key])
    assert record.place.journal not in os.listdir(store.directory)
    assert store.value(record.reference("b")) == "two"
    other = dataclasses.replace(record.reference("b"), key="f" * 32)
    with pytest.raises(LostValue, match="No such file"):
        store.value(other)


def test_what_lies_between_the_fields_of_an_array_is_not_kept() -> None:
    """It is there by chance: with it a vertex that gave the same again would have another digest."""
    inner = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    for dtype in (inner, np.dtype([("x", inner, (2,)), ("y", "i1")], align=True)):
        found = set()
        for filled in (0, 255):
            array = np.full(3 * dtype.itemsize, filled, "u1").view(dtype)
            for field in [array] if "a" in dtype.names else [array["x"]]:
                field["a"], field["b"] = 1, 2
            if "y" in dtype.names:
                array["y"] = 3
            found.add(values.encode(array)[0].digest)
        assert len(found) == 1
