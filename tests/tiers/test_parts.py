"""A part: one stream of bytes that proves itself, whoever brings it."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from testbed.places import MANIFEST, Kept, directory, drained, fetched, files_below, flip, opened, parts_of, run

from safepoint import Session
from safepoint.disk import Disk
from safepoint.record import dump, parse_record
from safepoint.restoring.read import Damaged
from safepoint.root import Root
from safepoint.sealed import seal, unseal
from safepoint.tiers import part as parts
from safepoint.tiers.part import Changed, Part, unpack
from safepoint.tiers.remote import Remote


def stream(work: Path) -> bytes:
    with contextlib.ExitStack() as stack:
        return b"".join(opened(work, stack).pieces())


def test_it_is_a_tar_that_gives_the_directory_of_the_set(tmp_path: Path) -> None:
    """By hand, with nothing but tar: what comes out is a committed set."""
    run(tmp_path / "a")
    data = stream(tmp_path / "a")
    assert data == stream(tmp_path / "a")  # the same each time: else nothing could be gone on with
    with contextlib.ExitStack() as stack:
        assert len(data) == opened(tmp_path / "a", stack).length
    (tmp_path / "a/u.dat").unlink(missing_ok=True)
    top = tmp_path / "b/.safepoint.d/rank-00000/set-00000002"
    top.mkdir(parents=True)
    done = subprocess.run(["tar", "-xpf", "-", "-C", top], input=data, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    (tmp_path / "b/.safepoint").write_text(MANIFEST)
    for work in ("a", "b"):
        with Session(tmp_path / work) as session:
            point = session.restore()
            assert point and point.step == 2
            session.close()
    assert files_below(tmp_path / "a") == files_below(tmp_path / "b")
    assert (tmp_path / "b/tree/a/f \udcff").stat().st_mode & 0o777 == 0o640


def test_it_is_cut_into_pieces_and_put_together_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PIECE", 5_000)
    monkeypatch.setattr("safepoint.tiers.remote.PIECE", 5_000)
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    assert len(place.objects) > 20 and max(map(len, (v for n, v in place.objects.items() if ".json" not in n))) <= 5_000
    (tmp_path / "b").mkdir()
    fetched(place, tmp_path / "b")
    (tmp_path / "b/.safepoint").write_text(MANIFEST)
    for work in ("a", "b"):
        with Session(tmp_path / work) as session:
            session.restore()
            session.close()
    assert files_below(tmp_path / "a") == files_below(tmp_path / "b")


@pytest.mark.leaves_damage
def test_a_table_that_was_begun_anew_comes_from_its_copy(tmp_path: Path) -> None:
    """And where no copy is left the set is not put as if it were whole."""
    run(tmp_path / "a")
    with Session(tmp_path / "a") as session:
        session.restore()
        session.close()
    before = (tmp_path / "a/log.csv").read_bytes()
    (tmp_path / "a/log.csv").write_text("another table\n" * 1000)
    assert before in stream(tmp_path / "a")
    for copy in (tmp_path / "a/.safepoint.d").rglob("append/log.csv"):
        copy.unlink()
    with pytest.raises(Damaged, match=r"log\.csv does not begin as the set has it"):
        stream(tmp_path / "a")


@pytest.mark.leaves_damage
@pytest.mark.parametrize("which", ["files/u.dat", "log.csv", "packed/big.dat.zst", "bundle.tar"])
def test_what_is_damaged_here_is_not_put(which: str, tmp_path: Path) -> None:
    run(tmp_path / "a")
    root, record = parts_of(tmp_path / "a")[0]
    path = tmp_path / "a" / which if which == "log.csv" else Path(root.set(record.number), which)
    flip(path, 513 if path.stat().st_size > 513 else 20)  # of a bundle: the first file, after its header
    place = Kept()
    with pytest.raises(Damaged):
        drained(tmp_path / "a", place)
    assert not [name for name in place.objects if name.endswith(".json")]


def test_a_set_that_is_removed_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    """A run prunes what is old: what an upload has open it keeps."""
    run(tmp_path / "a")
    expected = stream(tmp_path / "a")
    with contextlib.ExitStack() as stack:
        part = opened(tmp_path / "a", stack)
        run(tmp_path / "a", 3, first=3)
        assert b"".join(part.pieces()) == expected
        with pytest.raises(Changed):
            Part(part.root, part.record.number, stack)


def put_by_hand(place: Kept, change: object = None) -> str:
    """The name of the index."""
    (name,) = [name for name in place.objects if name.endswith(".json")]
    if callable(change):
        content = unseal(place.objects[name])
        content.pop("format")
        change(content)
        place.objects[name] = seal(content)
    return name


def renamed(content: dict[str, object], path: str) -> None:
    record = parse_record(str(content["record"]).encode("utf-8", "surrogateescape"))
    files = [file._replace(path=path) if file.path == "u.dat" else file for file in record.files]
    content["record"] = dump(record._replace(files=tuple(files))).decode()


def setuid(content: dict[str, object]) -> None:
    record = parse_record(str(content["record"]).encode("utf-8", "surrogateescape"))
    files = [file._replace(mode=file.mode | 0o4000) if file.path == "u.dat" else file for file in record.files]
    content["record"] = dump(record._replace(files=tuple(files))).decode()


def ranks(content: dict[str, object], count: int) -> None:
    record = parse_record(str(content["record"]).encode("utf-8", "surrogateescape"))
    content["record"] = dump(record._replace(ranks=count, patterns=("u-{rank}.dat",))).decode()


HOSTILE = {
    "a path that leads out": lambda c: renamed(c, "../../../out"),
    "an absolute path": lambda c: renamed(c, "/tmp/safepoint-out"),
    "a path into the side directory": lambda c: renamed(c, ".safepoint.d/rank-00000/lock"),
    "another number": lambda c: c.update(record=c["record"].replace('"number": 2', '"number": 3')),
    "no record": lambda c: c.update(record="{}"),
    "sizes that do not fit": lambda c: c.update(sizes=[1 << 20]),
    "a piece of exabytes": lambda c: c.update(sizes=[1 << 60]),
    "negative sizes": lambda c: c.update(sizes=[-1]),
    "checksums that are none": lambda c: c.update(checksums=["../../../../etc/passwd"]),
    "more checksums than pieces": lambda c: c.update(checksums=[*c["checksums"], "00"]),
    "a program that runs as somebody else": lambda c: setuid(c),
    "a manifest of a book's length": lambda c: c.update(manifest="# \n" * 500_000),
    "millions of ranks": lambda c: ranks(c, 4_000_000),
    "a bundle without end": lambda c: c.update(bundle=1 << 62),
    "a field too many, and one of another type": lambda c: c.update(bundle="x", more=1),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_index_from_a_hostile_store_is_refused_before_anything_is_written(case: str, tmp_path: Path) -> None:
    """Whatever is under a good seal may be written by anybody."""
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    put_by_hand(place, HOSTILE[case])
    (tmp_path / "b").mkdir()
    with pytest.raises(Damaged) as error:
        fetched(place, tmp_path / "b")
    assert len(str(error.value)) < 10_000
    assert not list((tmp_path / "b").iterdir())
    assert not (tmp_path / "out").exists()


def test_an_index_too_large_is_not_read(tmp_path: Path) -> None:
    run(tmp_path / "a")
    place = Kept()
    drained(tmp_path / "a", place)
    name = put_by_hand(place)
    listing = Remote(place).look()
    ((of, there),) = listing.sets.items()
    there[name.partition("/")[2]] = 1 << 40
    with pytest.raises(Damaged, match="has 1099511627776 bytes"):
        Remote(place).index(listing, of, 0)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.leaves_damage
def test_a_stream_of_another_content_leaves_nothing_behind(tmp_path: Path) -> None:
    """Also one whose pieces have the right checksums, as a hostile store may make them: then the record tells."""
    run(tmp_path / "a")
    with contextlib.ExitStack() as stack:
        part = opened(tmp_path / "a", stack)
        data = b"".join(part.pieces())
        record, bundle, content = part.record, part.bundle, part.content
    for number, (wrong, why) in enumerate({
        data[:-1]: "after its end", data + b"\0": "after its end", data[:5000]: "ends within", b"": "should be",
        flipped(data, 3): "should be", flipped(data, 124): "should be", data.replace(b"row 1", b"row 9"): "",
        data.replace(content, content.replace(b"u.dat", b"v.dat")): "another one than beside it",
    }.items()):  # fmt: skip
        root = Root(str(tmp_path / f"b{number}"), disk=Disk())
        Path(root.set(record.number)).mkdir(parents=True)
        if why:
            with pytest.raises(Damaged, match=why):
                unpack(root, record, bundle, content, [wrong])
    place = Kept()
    drained(tmp_path / "a", place)
    (piece,) = [name for name in place.objects if ".000000-" in name]
    wrong = place.objects[piece].replace(b"row 1", b"row 9")

    def change(index: dict[str, object]) -> None:
        from safepoint.disk.codec import checksum

        index["checksums"] = [checksum(wrong)]
        place.objects[piece[: piece.rindex("-") + 1] + checksum(wrong)[:16]] = wrong

    put_by_hand(place, change)
    (tmp_path / "c").mkdir()
    with pytest.raises(Damaged, match=r"checksum of log\.csv differs"):
        fetched(place, tmp_path / "c")
    assert not [path for path in (tmp_path / "c").rglob("*") if "set-" in str(path) or "fetched" in str(path)]


def test_what_is_brought_is_durable_before_it_has_the_name_of_a_set(tmp_path: Path) -> None:
    """Counted: each file and each directory is flushed before the rename, and the name after."""
    run(tmp_path / "a")
    drained(tmp_path / "a", directory(tmp_path / "place"))
    order: list[tuple[str, str]] = []

    class Noting(Disk):
        def sync_files(self, paths: object, opened: object = ()) -> None:
            paths = list(paths)  # type: ignore[call-overload]
            order.extend(("sync", path) for path in paths)
            super().sync_files(paths)

        def sync_dir(self, path: str) -> None:
            order.append(("sync", path))
            super().sync_dir(path)

        def rename(self, source: str, target: str) -> None:
            order.append(("rename", target))
            super().rename(source, target)

    (tmp_path / "b").mkdir()
    fetched(directory(tmp_path / "place"), tmp_path / "b", disk=Noting())
    at = next(n for n, (what, path) in enumerate(order) if what == "rename" and "set-" in path)
    flushed = {path for what, path in order[:at] if what == "sync"}
    top = order[at][1]
    for path in Path(top).rglob("*"):
        assert str(path).replace(top, f"{Path(top).parent}/fetched/{Path(top).name}") in flushed, path
    assert ("sync", str(Path(top).parent)) in order[at:]
