"""`safepoint diff`: which files of two sets differ, and where."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy
import pytest
from testbed.commands import answer, cli

import safepoint
from safepoint.ledger import contents


# diff.
def test_diff_tells_which_files_differ_and_by_how_much(work: Path) -> None:
    rows = {row["path"]: row for row in answer("diff", 2, 3, work, code=1)["files"]}
    assert {path: row["state"] for path, row in rows.items()} == {
        "u.npy": "differ", "big.dat": "differ", "history.csv": "differ", "run.zarr/0.0": "differ",
        "fields/10.vtk": "only in 2", "fields/20.vtk": "only in 3",
    }  # fmt: skip
    u = rows["u.npy"]
    assert (u["kind"], u["values"], u["differing"], u["largest"], u["where"]) == ("npy", 12, 12, 5.0, "[0, 0]")
    assert rows["run.zarr/0.0"]["offset"] == 0 and rows["history.csv"]["text"] == "2 and 3 lines"
    assert cli("diff", 2, 2, work).exit_code == 0


def test_diff_with_now_reads_what_is_in_place(work: Path) -> None:
    cli("restore", work)
    assert answer("diff", 3, "now", work)["equal"] is True
    u = numpy.load(work / "u.npy")
    u[1, 2] += 1e-3
    numpy.save(work / "u.npy", u)
    rows = [row for row in answer("diff", 3, "now", work, code=1)["files"] if row["state"] != "equal"]
    assert [(row["path"], row["differing"], row["where"]) for row in rows] == [("u.npy", 1, "[1, 2]")]
    assert rows[0]["largest"] == pytest.approx(1e-3)
    assert "4 of 5 files equal" in cli("diff", 3, "now", work).stdout


def pair(tmp_path: Path, a: bytes, b: bytes, name: str = "x.dat") -> contents.Difference:
    (tmp_path / "a").write_bytes(a)
    (tmp_path / "b").write_bytes(b)
    return contents.compare(str(tmp_path / "a"), str(tmp_path / "b"), name)


def test_tables_are_compared_value_by_value(tmp_path: Path) -> None:
    found = pair(tmp_path, b"t, u\n1, 2.0\n2, 1.0D+03\n", b"t, u\n1, 2.5\n2, 1000\n")
    assert (found.kind, found.values, found.differing, found.largest) == ("text", 4, 1, 0.5)
    assert found.where == "line 2, column 2" and found.relative == pytest.approx(0.2)
    found = pair(tmp_path, b"1.0 nan\n", b"1.00 NaN\n")
    assert found.equal and not found.same_bytes and "all 2 values are equal" in found.text
    assert "line 1 has 2 and 3 columns" in pair(tmp_path, b"1 2\n", b"1 2 3\n").text
    assert pair(tmp_path, b"1 inf\n", b"1 2\n").largest == float("inf")


def test_other_bytes_are_compared_up_to_the_first_that_differs(tmp_path: Path) -> None:
    found = pair(tmp_path, b"\0" * 3000000 + b"a", b"\0" * 3000000 + b"b")
    assert (found.kind, found.offset, found.equal) == ("bytes", 3000000, False)
    assert "the shorter begins the longer" in pair(tmp_path, b"\0abc", b"\0abcd").text
    assert pair(tmp_path, b"\0same", b"\0same").equal


def test_arrays_are_compared_value_by_value(tmp_path: Path) -> None:
    def saved(array: Any) -> bytes:
        file = io.BytesIO()
        numpy.save(file, array)
        return file.getvalue()

    a = numpy.zeros((5, 300000), "f4")
    b = a.copy()
    b[4, 299999], b[0, 1] = 2, numpy.nan
    found = pair(tmp_path, saved(a), saved(b))
    assert (found.kind, found.values, found.differing, found.largest) == ("npy", 1500000, 2, float("inf"))
    assert found.where == "[0, 1]"
    b[0, 1] = 0
    assert pair(tmp_path, saved(a), saved(b)).where == "[4, 299999]"
    assert "shapes (5, 300000) and (5,)" in pair(tmp_path, saved(a), saved(a[:, 0])).text
    assert "types float32 and float64" in pair(tmp_path, saved(a), saved(a.astype("f8"))).text
    assert "values not compared" in pair(tmp_path, saved(a)[:200], saved(b)[:100]).text
    one, other = io.BytesIO(), io.BytesIO()
    numpy.savez(one, x=numpy.arange(4), y=1)
    numpy.savez(other, x=numpy.arange(4) * 2, z=1)
    found = pair(tmp_path, one.getvalue(), other.getvalue(), "u.npz")
    assert (found.kind, found.largest, found.where) == ("npz", 3.0, "x[3]")
    assert "y only in the first" in found.text and "z only in the second" in found.text


def test_hdf5_files_are_compared_by_datasets_and_attributes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for name, shift in (("a", 0.0), ("b", 0.5)):
        with h5py.File(tmp_path / name, "w") as file:
            file["g/u"] = numpy.arange(6.0).reshape(2, 3)
            file["g/u"][1, 2] += shift
            file["g"].attrs["t"] = shift
    found = contents.compare(str(tmp_path / "a"), str(tmp_path / "b"), "x.h5")
    assert (found.kind, found.values, found.largest, found.where) == ("hdf5", 6, 0.5, "g/u[1, 2]")
    assert "attribute t of g differs" in found.text


def test_where_numpy_is_missing_the_bytes_are_compared_and_it_is_said(work: Path) -> None:
    code = "import sys; sys.modules['numpy'] = None; from safepoint.cli import main; main()"
    command = [sys.executable, "-c", code, "diff", "2", "3", str(work)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "numpy is not installed" in done.stdout


def test_diff_compares_symbolic_links_by_what_they_point_to(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    (work / ".safepoint").write_text("out/ copy\n")
    with contextlib.closing(safepoint.Session(work)) as session:
        session.restore()
        for n in (1, 2):
            (work / f"out/{n}.dat").write_text("x")
            (work / "out/latest").unlink(missing_ok=True)
            (work / "out/latest").symlink_to(f"{n}.dat")
            session.hide(n, wait=True)
    rows = {row["path"]: row for row in answer("diff", 1, 2, work, code=1)["files"]}
    assert rows["out/latest"]["state"] == "differ" and "1.dat" in rows["out/latest"]["text"]
    assert answer("diff", 2, "now", work)["equal"]


def test_diff_says_nothing_of_a_set_of_which_a_rank_is_lacking(ranked: Path) -> None:
    result = cli("diff", 2, 3, ranked)
    assert result.exit_code == 20 and "not whole" in result.stderr and "rank 2" in result.stderr


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_small_archive_of_a_large_array_is_compared_in_blocks(tmp_path: Path, order: Any) -> None:
    a = numpy.zeros((3, 2_000_000), "f8", order)
    b = a.copy(order)
    b[2, 1_999_998] = 1
    files = []
    for array in (a, b):
        numpy.savez_compressed(file := io.BytesIO(), x=array)
        files.append(file.getvalue())
    assert max(map(len, files)) < 100_000
    del a, b
    tracemalloc.start()
    try:
        found = pair(tmp_path, *files, "u.npz")
        assert tracemalloc.get_traced_memory()[1] < 20 << 20  # of 48 MB
    finally:
        tracemalloc.stop()
    assert (found.values, found.differing, found.where) == (6_000_000, 1, "x[2, 1999998]")


@pytest.mark.parametrize("field", [8, 10])
def test_an_archive_that_cannot_be_unpacked_is_compared_by_bytes(tmp_path: Path, field: int) -> None:
    """It is encrypted, or packed in a way that is not known here."""
    numpy.savez(file := io.BytesIO(), x=numpy.arange(9))
    data = bytearray(file.getvalue())
    data[data.index(b"PK\x01\x02") + field] = 99
    found = pair(tmp_path, bytes(data), file.getvalue(), "u.npz")
    assert found.kind == "bytes" and "cannot be read as what it seems to be" in found.text


def test_a_dataset_with_a_row_larger_than_the_memory_is_compared_by_bytes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for name in ("a", "b"):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("u", (1, 1 << 40), "f8", chunks=(1, 1 << 20), compression="gzip")
            file.attrs["name"] = name
    found = contents.compare(str(tmp_path / "a"), str(tmp_path / "b"), "x.h5")
    assert found.kind == "bytes" and "values not compared" in found.text


@pytest.mark.parametrize("name", ["u.npz", "u.h5"])
def test_diff_of_a_torn_file_compares_bytes(tmp_path: Path, name: str) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    if name == "u.npz":
        numpy.savez(tmp_path / name, a=numpy.arange(10))
        (tmp_path / name).rename(whole)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(whole, "w") as file:
            file["a"] = numpy.arange(10)
    torn.write_bytes(whole.read_bytes()[:-60])
    found = contents.compare(str(whole), str(torn), name)
    assert found.kind == "bytes" and "cannot be read" in found.text and not found.equal
