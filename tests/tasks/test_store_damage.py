"""T3 of the store of tasks: a byte that is flipped, or missing, costs the vertex that it belongs to, and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from testbed import sweep
from testbed.task_stories import Story, assert_value, key, small_results, store_of

from safepoint.tasks import journal, kept, values
from safepoint.tasks.jobs import Place, Record
from safepoint.tasks.saved import LostValue, Store

pytestmark = pytest.mark.leaves_damage
SMALL_ONES = "a", "b", "c", "d", "e", "f"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    small_results(monkeypatch)
    store = store_of(tmp_path)
    with store.held():
        writer = store.writer("w", every=0)
        for name, value in Story.VALUES.items():
            if name != "loose":
                writer.put(Record(name, key(name), (), False), values.encode(value))
        writer.close()
    return store


def given(store: Store) -> dict[str, bool]:
    """The vertices that have finished, and whether their results can be given; each that can is right."""
    found = {}
    for record in store.records().values():
        try:
            assert_value(store, record)
            found[record.vertex] = True
        except LostValue as lost:
            assert (lost.vertex, lost.key) == (record.vertex, record.key)
            found[record.vertex] = False
    return found


def again(store: Store) -> None:
    """What is lost can be made again, and is there then."""
    lost = [key(name) for name, whole in given(store).items() if not whole]
    with store.held():
        store.drop(lost)
        writer = store.writer("again", every=0)
        for name, value in Story.VALUES.items():
            if name != "loose" and key(name) not in store.records():
                writer.put(Record(name, key(name), (), False), values.encode(value))
        writer.close()
    assert given(store) == dict.fromkeys(set(Story.VALUES) - {"loose"}, True)


def files(store: Store) -> list[Path]:
    top = Path(store.directory)
    return sorted([*top.glob("journal-*"), *top.glob("done/*/*")])


def test_a_flipped_byte_anywhere_costs_its_vertex_alone_and_is_found(store: Store) -> None:
    every = set(Story.VALUES) - {"loose"}
    for path in files(store):
        data = path.read_bytes()
        for at in sweep.sample(range(len(data)), 23):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            found = given(store)
            whole = {name for name, is_whole in found.items() if is_whole}
            assert len(every - whole) == 1, (path, at, every - whole)
            damages = list(store.verify())
            assert len(damages) == 1 and path.match(damages[0].file), (path, at, damages)
        path.write_bytes(data)
    assert list(store.verify()) == []


def test_what_is_damaged_is_made_again(store: Store) -> None:
    for path in files(store):
        data = path.read_bytes()
        at = len(data) // 2
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
    assert not all(given(store).values()) or len(given(store)) < len(Story.VALUES) - 1
    again(store)


def test_a_journal_torn_at_any_byte_keeps_all_before_it(store: Store) -> None:
    (path,) = Path(store.directory).glob("journal-*")
    data = path.read_bytes()
    ends = {
        block.end: kept.read(block.record, Place()).vertex
        for block in journal.blocks(store.disk, str(path))
        if block.record
    }
    assert list(ends.values()) == list(SMALL_ONES)
    for at in sweep.sample(range(len(data)), 11):
        path.write_bytes(data[:at])
        assert [name for name in given(store) if name in SMALL_ONES] == [
            name for end, name in ends.items() if end <= at
        ]
        assert all(damage.torn for damage in store.verify())
    path.write_bytes(data[:at])
    again(store)


@pytest.mark.parametrize("hole", [1, 100, 5000])
def test_zeros_in_the_middle_of_a_journal_cost_no_block_behind_them(store: Store, hole: int) -> None:
    """As a power cut may leave them between a page that was written and one that was not."""
    (path,) = Path(store.directory).glob("journal-*")
    data = path.read_bytes()
    first = next(journal.blocks(store.disk, str(path))).end
    path.write_bytes((data[: first + 30] + bytes(hole) + data[first + 30 + hole :])[: len(data)])
    found = given(store)
    assert found["a"] and ("b" not in found)
    assert ("f" in found) is (hole < 5000)


def test_a_result_that_holds_a_whole_journal_is_not_taken_for_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journal, head: the block round it is damaged, and those in it are looked at, but have another offset."""
    (path,) = Path(store.directory).glob("journal-*")
    inner = path.read_bytes()
    monkeypatch.setattr(journal, "SMALL", 64 << 10)
    writer = store.writer("w", every=0)
    for name, data in (("before", b""), ("holds", inner)):
        record = writer.put(Record(name, key(name), (), False), values.encode(data))
    writer.close()
    outer = Path(store.directory, record.place.journal)
    path.unlink()
    assert {"before", "holds"} < {each.vertex for each in store.records().values()}
    data = bytearray(outer.read_bytes())
    data[record.place.offset + 30] ^= 1
    outer.write_bytes(data)
    assert {each.vertex for each in store.records().values()} == {"before", "large", "two"}


def test_a_missing_file_costs_its_vertex_alone(store: Store) -> None:
    (path,) = Path(store.directory).glob(f"done/{key('large')}/out.pkl")
    path.unlink()
    assert given(store) == {name: name != "large" for name in Story.VALUES if name != "loose"}
    assert [(damage.vertex, damage.what) for damage in store.verify()] == [("large", os.strerror(2))]
    again(store)


STRANGE = b"", b"[]", b"{}", b"nonsense", b'{"vertex": 1}', b'{"forgotten": 3}', b'{"forgotten": [["x"]]}', b"[" * 99999


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: text[:20].decode())
def test_a_strange_record_under_a_good_checksum_is_no_error(store: Store, text: bytes) -> None:
    writer = store.writer("w", every=0)
    writer.put_again(text, b"")
    writer.close()
    assert given(store) == dict.fromkeys(set(Story.VALUES) - {"loose"}, True)
    assert [damage.file for damage in store.verify()] == [max(store.journals())]


def test_a_record_that_leads_out_of_its_directory_is_not_followed(store: Store) -> None:
    for file in ("../../../secret", "/etc/passwd", "files/../../x"):
        with pytest.raises(kept.Strange):
            kept.read(
                b'{"vertex": "v", "key": "%s", "outputs": [["", "pkl", "", 3, "%s"]], "named": false, "kept": true, '
                b'"seconds": 0, "attempt": 1, "host": "", "worker": "", "time": 0, "versions": {}, "parts": {}, '
                b'"source": ""}' % (b"0" * 32, file.encode()),
                Place(),
            )
