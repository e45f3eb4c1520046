"""What nodes say to each other: who is believed, and what is killed on the way. Real sockets, on loopback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.flips import Flips
from testbed.places import MANIFEST, files_below, flip, run

from safepoint.nodes import giving, held, transfer
from safepoint.nodes.asking import Which, ask_part, ask_record, ask_sets, ask_to_hold
from safepoint.nodes.giving import Server
from safepoint.nodes.held import hold
from safepoint.nodes.nearby import Here
from safepoint.nodes.transfer import Channel, Peer, Refused, digest
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import read_record
from safepoint.restoring.verify import verify
from safepoint.root import Root
from safepoint.tiers import fetching
from safepoint.tiers.part import Part
from safepoint.tiers.place import Unreachable, Vanished

SECRET = bytes(range(32))
HANGS = 300.0  # seconds that only a hang takes


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with a set of two steps."""
    (found := tmp_path / "w").mkdir()
    (found / ".safepoint").write_text(MANIFEST)
    run(found, 2)
    return found


@pytest.fixture
def there(tmp_path: Path) -> Root:
    """The directory of another node."""
    (tmp_path / "other/.safepoint.d").mkdir(parents=True)
    return Root(str(tmp_path / "other"))


@contextlib.contextmanager
def serving(root: Root) -> Iterator[Peer]:
    server = Server(root, SECRET, "127.0.0.1")
    try:
        yield Peer("127.0.0.1", server.port, SECRET)
    finally:
        server.close()


def newest(root: Root) -> Record:
    return read_record(root, max(root.numbers("set")))


def sound(root: Root) -> bool:
    return {*verify(root).values()} == {"committed"}


@contextlib.contextmanager
def part_of(root: Root) -> Iterator[Part]:
    with contextlib.ExitStack() as opened:
        yield Part(root, max(root.numbers("set")), opened)


def test_a_copy_is_a_set_that_gives_the_same_bytes_back(work: Path, there: Root, tmp_path: Path) -> None:
    root = Root(str(work))
    with serving(there) as peer, part_of(root) as part:
        ask_to_hold(peer, part, part.blocks())
        record = newest(there.held(0))
        assert record == newest(root)
        which = Which(0, record.number, "held")
        assert ask_record(peer, which) == part.content
        (tmp_path / "back/.safepoint.d/rank-00000").mkdir(parents=True)
        back = Root(str(tmp_path / "back"))
        with ask_part(peer, which) as coming:
            fetching.bring(back, record, coming.bundle, coming.content, coming.blocks)
        fetching.put_in_place(back, record.number)
    assert sound(back)
    assert newest(back) == record and os.listdir(back.path) == [f"set-{record.number:08d}"]


@pytest.mark.parametrize("count", [pytest.param(300, marks=pytest.mark.proof), 15])
def test_a_bit_that_changes_on_the_way_makes_no_copy_of_other_bytes(
    work: Path, there: Root, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Also of bytes of which the record has no checksum, such as heads in a tar. The next try makes the copy."""
    monkeypatch.setattr("safepoint.nodes.asking.PAUSE", 0.001)
    root, flips, wrong = Root(str(work)), Flips(monkeypatch), 0
    with serving(there) as peer:

        def copied() -> dict[str, bytes | None]:
            with part_of(root) as part:
                ask_to_hold(peer, part, part.blocks())
            return files_below(there.held(0).set(newest(root).number))

        whole, length = copied(), flips.count
        for at in range(64, length, length // count):
            shutil.rmtree(there.held(0).path)
            flips.at(at)
            try:
                found = copied()
            except (Unreachable, Vanished, Damaged):
                wrong, found = wrong + 1, copied()
            assert found == whole, at
    assert wrong > count / 2
    assert any("changed on the way" in each.getMessage() for each in caplog.records)


def test_a_peer_without_the_secret_is_refused_on_both_sides(work: Path, there: Root) -> None:
    root = Root(str(work))
    with serving(there) as peer, part_of(root) as part:
        stranger = peer._replace(secret=bytes(32))
        with pytest.raises(Unreachable):
            ask_to_hold(stranger, part, part.blocks())
        with pytest.raises(Unreachable):
            ask_record(stranger, Which(0, 1, "own"))
    assert not os.path.exists(f"{there.side}/held")
    with socket.create_server(("127.0.0.1", 0)) as listening:  # who listens there does not know it
        threading.Thread(target=_answer_anything, args=(listening,), daemon=True).start()
        with pytest.raises(Unreachable, match="another program listens there"):
            ask_record(Peer("127.0.0.1", listening.getsockname()[1], SECRET), Which(0, 1, "own"))


def _answer_anything(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(bytes(32))
        connection.recv(64)
        connection.sendall(bytes(32))
        connection.recv(1)


class Recorded(Channel):
    said = b""

    def _exactly(self, size: int) -> bytes:
        data = super()._exactly(size)
        Recorded.said += data
        return data


def test_a_greeting_that_is_said_again_is_refused(work: Path, there: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a listener on the wire has heard of a client is of no use to it."""
    monkeypatch.setattr(giving, "Channel", Recorded)
    Recorded.said = b""
    root = Root(str(work))
    with serving(root) as peer:
        ask_record(peer, Which(0, 1, "own"))
        heard, Recorded.said = Recorded.said, b""
        with socket.create_connection((peer.host, peer.port)) as again:
            again.recv(32)
            again.sendall(heard)  # nonce, signature and request
            assert closed(again)
        with socket.create_connection((peer.host, peer.port)) as mirror:  # and the server's own words neither
            nonce = mirror.recv(32)
            mirror.sendall(nonce)
            mirror.sendall(bytes(32))
            assert closed(mirror)


def closed(connection: socket.socket) -> bool:
    """Whether the server has ended it, without another word."""
    connection.settimeout(HANGS)
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def greeted(peer: Peer) -> Iterator[tuple[socket.socket, Channel]]:
    with socket.create_connection((peer.host, peer.port), HANGS) as connection:
        channel = Channel(connection)
        channel.greet(peer)
        connection.settimeout(HANGS)
        yield connection, channel


def say(connection: socket.socket, channel: Channel, words: Any) -> None:
    """As one who knows the secret would, also what `Channel.say` does not."""
    data = json.dumps(words).encode()
    data += transfer._sign(channel._key, b"c", b"0 " + data)
    connection.sendall(struct.pack(">I", len(data)) + data)


def test_a_request_that_nobody_would_make_is_refused(there: Root) -> None:
    with serving(there) as peer:
        for request in (
            {"do": "hold", "rank": -1, "bundle": 0, "content": 10, "length": 10},
            {"do": "hold", "rank": 10**6, "bundle": 0, "content": 10, "length": 10},
            {"do": "hold", "rank": "../../x", "bundle": 0, "content": 10, "length": 10},
            {"do": "hold", "rank": 0, "bundle": 0, "content": 1 << 40, "length": 10},
            {"do": "hold", "rank": 0, "bundle": 0, "content": 10, "length": -1},
            {"do": "record", "rank": True, "number": 1, "where": "own"},
            {"do": "record", "rank": 0, "number": "1/../../..", "where": "own"},
            {"do": "part", "rank": 0, "number": 10**13, "where": "own"},
            {"do": "remove", "rank": 0, "number": 1}, {"do": ["hold"]}, [], "hold",
        ):  # fmt: skip
            with greeted(peer) as (connection, channel):
                say(connection, channel, request)
                assert closed(connection), request
    assert os.listdir(there.side) == []


def test_words_that_nobody_of_ours_has_said_are_not_listened_to(there: Root) -> None:
    """After the greeting too: a word without its signature, or an older one said again."""
    data = json.dumps({"do": "look"}).encode()
    for forged in (data, data + bytes(32)):
        with serving(there) as peer, greeted(peer) as (connection, _):
            connection.sendall(struct.pack(">I", len(forged)) + forged)
            assert closed(connection)


def test_a_greeting_that_is_passed_on_by_somebody_between_is_refused(work: Path) -> None:
    """Who listens at another address, and hands all of it to the real one: neither side takes it for the other."""
    with serving(Root(str(work))) as peer, socket.create_server(("127.0.0.1", 0)) as between:
        threading.Thread(target=_hand_on, args=(between, peer), daemon=True).start()
        with pytest.raises(Unreachable):
            ask_record(peer._replace(port=between.getsockname()[1]), Which(0, 1, "own"))


def _hand_on(between: socket.socket, peer: Peer) -> None:
    with contextlib.suppress(OSError):
        while True:
            one, _ = between.accept()
            with one, socket.create_connection((peer.host, peer.port)) as other:
                one.settimeout(1)
                other.settimeout(1)
                with contextlib.suppress(OSError):
                    one.sendall(other.recv(32))
                    other.sendall(one.recv(64))
                    one.sendall(other.recv(32))


def test_a_header_that_is_too_long_is_not_read(there: Root) -> None:
    with serving(there) as peer, greeted(peer) as (connection, _):
        connection.sendall(struct.pack(">I", 1 << 31) + bytes(1000))
        assert closed(connection)


def test_a_record_whose_paths_lead_out_is_refused_and_nothing_is_written(work: Path, there: Root) -> None:
    """The seal is right: who knows the secret has made it so."""
    from safepoint.record import dump

    record = newest(Root(str(work)))
    for path in ("../../../evil", "/tmp/evil", ".safepoint.d/rank-00000/lock"):
        content = dump(record._replace(files=(record.files[0]._replace(path=path),)))
        with serving(there) as peer, greeted(peer) as (_, channel):
            channel.say(do="hold", rank=0, bundle=0, content=len(content), length=100, record=digest(content))
            channel.hear()
            channel.give([content])
            channel.give([bytes(100)])
            assert "it names" in channel.hear()["error"]
        found = [str(p.relative_to(there.work)) for p in Path(there.work).rglob("*") if p.is_file()]
        assert found == [], found
    other = dump(record._replace(rank=3, ranks=4))
    with pytest.raises(Damaged, match="it is of rank 3 of 4"):
        hold(there.held(0), 0, other, [])


def test_more_than_was_said_is_not_taken(work: Path, there: Root) -> None:
    root = Root(str(work))
    with serving(there) as peer, part_of(root) as part, greeted(peer) as (_, channel):
        sum_ = digest(part.content)
        channel.say(do="hold", rank=0, bundle=part.bundle, content=len(part.content), length=100, record=sum_)
        channel.hear()
        channel.give([part.content])
        with contextlib.suppress(OSError):
            channel.give(part.blocks())
        with contextlib.suppress(OSError, Refused):
            assert "error" in channel.hear()
    assert not there.held(0).numbers("set")


def test_no_room_is_known_before_a_byte_travels(work: Path, there: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safepoint.nodes.giving.room", lambda path: 10.0)
    root = Root(str(work))
    with (
        serving(there) as peer,
        part_of(root) as part,
        pytest.raises(Unreachable, match="10 are free, and"),
    ):
        ask_to_hold(peer, part, _never())


def _never() -> Iterator[bytes]:
    raise AssertionError("a byte was read")
    yield b""


def test_what_is_not_there_and_what_is_damaged_is_said(work: Path) -> None:
    root = Root(str(work))
    number = max(root.numbers("set"))
    with serving(root) as peer:
        with pytest.raises(Vanished):
            ask_record(peer, Which(0, 77, "own"))
        with pytest.raises(Vanished):
            ask_record(peer, Which(0, number, "held"))
        assert ask_sets(peer) == []  # there is no remote place
        record = newest(root)
        file = next(f for f in record.files if f.kind == "file" and f.kept == "raw" and f.size)
        path = Path(root.stored(number, file.path))
        path.write_bytes(bytes(len(path.read_bytes())))
        (work / "back/.safepoint.d/rank-00000").mkdir(parents=True)
        back = Root(str(work / "back"))
        with (
            pytest.raises((Damaged, Vanished), match=r"is not as it was committed|the checksum of .* differs"),
            ask_part(peer, Which(0, number, "own")) as coming,
        ):
            fetching.bring(back, record, coming.bundle, coming.content, coming.blocks)
        assert not os.path.exists(back.fetched) and not back.numbers("set")
    shutil.rmtree(root.side)  # a test leaves no damage behind


def test_a_peer_that_says_nothing_is_not_waited_for(there: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do many of them keep others away for ever, though each says a byte now and then."""
    monkeypatch.setattr(transfer, "GREETS", 0.5)
    monkeypatch.setattr(giving, "STRANGERS", 4)
    with serving(there) as peer, contextlib.ExitStack() as silent:
        for _ in range(8):
            each = silent.enter_context(socket.create_connection((peer.host, peer.port)))
            threading.Thread(target=_drip, args=(each,), daemon=True).start()
        until = time.monotonic() + HANGS
        while time.monotonic() < until:
            with contextlib.suppress(Unreachable):
                assert ask_sets(peer) == []
                break
        else:
            raise AssertionError("they keep others away")


def test_a_node_that_hangs_is_named_and_given_up_after_so_long(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has greeted, and was stopped within a small copy."""
    monkeypatch.setattr(transfer, "NAP", 0.01)
    monkeypatch.setattr(transfer, "WORD", 0.02)
    go_on = threading.Event()
    monkeypatch.setattr(giving.Server, "_answer", lambda *_: go_on.wait(HANGS))
    with serving(root := Root(str(work))) as peer, part_of(root) as part:
        hangs = peer._replace(patience=0.2)
        with pytest.raises(Unreachable, match=f"node {peer.text}: it has sent nothing for 0 s"):
            ask_to_hold(hangs, part, part.blocks())
        go_on.set()
    assert f"waiting for node {peer.text}: it has sent nothing for" in caplog.records[0].getMessage()


def _drip(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b".")
            time.sleep(0.2)


def test_who_is_silent_keeps_nobody_away(there: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a greeting may take: the oldest silent connection is closed, first of the address with too many."""
    monkeypatch.setattr(transfer, "GREETS", HANGS)
    monkeypatch.setattr(giving, "STRANGERS", 8)
    monkeypatch.setattr(giving, "OF_ONE", 4)
    with serving(there) as peer, contextlib.ExitStack() as silent:

        def one(host: str) -> socket.socket:
            found = socket.create_connection((peer.host, peer.port), source_address=(host, 0))
            found.settimeout(HANGS)
            found.recv(32)  # it was let in
            return silent.enter_context(found)

        other = one("127.0.0.2")
        many = [one("127.0.0.1") for _ in range(40)]
        assert ask_sets(peer) == []
        assert all(closed(each) for each in many[:36])
        apart = [one(f"127.0.0.{at}") for at in range(3, 11)]  # each has few: the oldest of all goes
        assert closed(other) and ask_sets(peer) == []
        apart[-1].settimeout(0)
        with pytest.raises(BlockingIOError):
            apart[-1].recv(1)


def test_who_has_greeted_and_asks_nothing_holds_nothing(there: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving, "AT_ONCE", 1)
    with serving(there) as peer, greeted(peer):
        assert ask_sets(peer) == []


def test_more_requests_than_are_answered_at_a_time_wait(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal would pass for a set that is not there."""
    monkeypatch.setattr(giving, "AT_ONCE", 1)
    root, got, came = Root(str(work)), list[bytes](), threading.Event()
    with serving(root) as peer, greeted(peer) as (_, channel):
        channel.say(do="part", **Which(0, max(root.numbers("set")), "own")._asdict())
        channel.hear()  # it is being given a part, and takes its time

        class Second(Channel):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                came.set()

        monkeypatch.setattr(giving, "Channel", Second)
        asking = threading.Thread(target=lambda: got.append(ask_record(peer, Which(0, 1, "own"))))
        asking.start()
        assert came.wait(HANGS)
        for _ in range(2):
            list(channel.take(1 << 30))
        asking.join(HANGS)
    assert len(got) == 1


# Killed at each operation, and power cuts, at the node that takes a copy in.


def _held_whole(directory: str, wanted: Record) -> bool:
    """Whether there is a copy; whatever else is there must not pass for one."""
    held = Root(directory).held(0)
    numbers = held.numbers("set") if os.path.exists(held.path) else []
    for number in numbers:
        assert sound(held) and read_record(held, number) == wanted, number
    return bool(numbers)


def _take_in(disk: FaultDisk, part: Part) -> None:
    disk.mkdir(f"{disk.directory}/.safepoint.d")
    disk.sync_dir(disk.directory)
    hold(Root(disk.directory, disk=disk).held(0), part.bundle, part.content, part.blocks())


def made(path: Path) -> Path:
    path.mkdir()
    return path


def _on(where: Path, **how: int) -> FaultDisk:
    where.mkdir()
    return FaultDisk(str(where), **how)  # type: ignore[arg-type]


def test_a_copy_that_is_killed_at_any_operation_is_whole_or_none(work: Path, tmp_path: Path) -> None:
    """The table of `giving`."""
    with part_of(Root(str(work))) as part:
        _take_in(disk := _on(tmp_path / "count"), part)
        length, whole = len(disk.record.ops), 0
        for at in range(length):
            with contextlib.suppress(Killed):
                _take_in(disk := _on(tmp_path / f"at-{at}", kill_at=at), part)
            disk.end()
            whole += _held_whole(disk.directory, part.record)
    assert length > 20 and 0 < whole < length


def test_a_copy_that_was_acknowledged_survives_a_power_cut(work: Path, tmp_path: Path) -> None:
    """And of one that was not, no half does."""
    with part_of(Root(str(work))) as part:
        _take_in(disk := _on(tmp_path / "disk"), part)
        length, cuts, into = len(disk.record.ops), 0, str(made(tmp_path / "cut"))
        for image in images(disk.record, into, promised=lambda ops: int(ops == length)):
            assert _held_whole(image.directory, part.record) or image.ops < length, image
            cuts += 1
    assert cuts > 50


def test_a_copy_that_is_taken_in_again_is_there_at_any_kill(work: Path, tmp_path: Path) -> None:
    """After each restart the set that was given back is copied once more; and a copy that is damaged is replaced."""

    def again(where: Path, **how: int) -> FaultDisk:
        """One that is there is taken in once more."""
        where.mkdir()
        (where / ".safepoint.d").mkdir()
        hold(Root(str(where)).held(0), part.bundle, part.content, part.blocks())
        disk = FaultDisk(str(where), **how)  # type: ignore[arg-type]
        with contextlib.suppress(Killed):
            hold(Root(str(where), disk=disk).held(0), part.bundle, part.content, part.blocks())
        disk.end()
        return disk

    with part_of(Root(str(work))) as part:
        length = len(again(tmp_path / "count").record.ops)
        assert length > 20
        for at in range(length):
            disk = again(tmp_path / f"at-{at}", kill_at=at)
            assert _held_whole(disk.directory, part.record), at


def test_what_the_other_node_has_is_not_sent_again(work: Path, there: Root) -> None:
    root = Root(str(work))
    with serving(there) as peer, part_of(root) as part:
        ask_to_hold(peer, part, part.blocks())
        ask_to_hold(peer, part, _never())
        number = part.record.number
        flip(next(Path(there.held(0).set(number)).rglob("*.zst")))
        ask_to_hold(peer, part, part.blocks())  # it is damaged there
    assert sound(there.held(0))


def test_two_processes_do_not_take_in_one_copy_together(
    work: Path, there: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    with part_of(Root(str(work))) as part:
        held_there = there.held(0)
        hold(held_there, part.bundle, part.content, part.blocks())
        release = there.disk.lock(held_there.lock)
        assert release
        monkeypatch.setattr(held, "HELD", 0.2)
        with pytest.raises(Damaged, match="another copy of this rank is being taken in"):
            hold(held_there, part.bundle, part.content, _never())
        release()
    assert sound(held_there)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_copy_whose_disk_fails_is_not_acknowledged(work: Path, tmp_path: Path, error: int) -> None:
    with part_of(Root(str(work))) as part:
        _take_in(disk := _on(tmp_path / "count"), part)
        for at in range(len(disk.record.ops)):
            try:
                _take_in(disk := _on(tmp_path / f"at-{at}", fail_at=at, error=error), part)
            except (OSError, Damaged):
                disk.end()
                # A flush that failed is not asked again: nothing is left that the next try would take for whole.
                assert not (disk.failed.startswith("sync") and _held_whole(disk.directory, part.record)), at
                continue
            disk.end()
            assert _held_whole(disk.directory, part.record), at  # it could do without


def skips(what: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(fetching, what, lambda *_: None)


def names_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy has its name before its bytes are durable."""
    flush = fetching.sync
    monkeypatch.setattr(fetching, "sync", lambda *_: None)
    real = held.put_in_place

    def early(root: Root, number: int) -> None:
        real(root, number)
        flush(root.disk, [], [root.set(number)])

    monkeypatch.setattr(held, "put_in_place", early)


@pytest.mark.parametrize("mutant", [skips("sync"), names_it_first], ids=["skips", "names_it_first"])
def test_a_copy_that_is_acknowledged_too_early_is_noticed(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_copy_that_was_acknowledged_survives_a_power_cut(work, tmp_path)


def test_a_copy_that_is_not_compared_with_its_checksums_is_noticed(
    work: Path, there: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of each kind, one bit wrong on the way: refused; and with the comparison left out it is not."""
    root = Root(str(work))
    with part_of(root) as part:
        stream = b"".join(map(bytes, part.blocks()))
        content = [at for at in range(0, len(stream), 97) if stream[at]]
        refused = 0
        for at in content:
            wrong = bytearray(stream)
            wrong[at] ^= 1
            with contextlib.suppress(Damaged):
                hold(there.held(0), part.bundle, part.content, [bytes(wrong)])
                assert sound(there.held(0)), at  # of what no checksum speaks
                continue
            refused += 1
        assert refused > len(content) // 2
        monkeypatch.setattr(fetching, "check", lambda *_: None)
        monkeypatch.setattr("safepoint.tiers.part._write", _plain)
        wrong = bytearray(stream)
        wrong[600] ^= 1
        hold(there.held(0), part.bundle, part.content, [bytes(wrong)])
        assert not sound(there.held(0))
    shutil.rmtree(there.side)


def _plain(root: Root, stream: Any, sink: Any, member: Any) -> None:
    left = member.size
    while left:
        left -= sink.write(bytes(stream.read(left)))


def test_a_copy_takes_the_place_of_one_of_the_same_number(work: Path, there: Root) -> None:
    """Numbers come again after a fall-back."""
    root = Root(str(work))
    with part_of(root) as part:
        hold(there.held(0), part.bundle, part.content, part.blocks())
        Path(there.held(0).record(part.record.number)).write_text("of another history")
        hold(there.held(0), part.bundle, part.content, part.blocks())
    assert newest(there.held(0)) == part.record and sound(there.held(0))


def test_a_source_on_this_node_gives_the_same(work: Path, there: Root) -> None:
    os.mkdir(there.path)
    root = Root(str(work))
    source = Here("here", root, max(root.numbers("set")))
    source.bring(there)
    fetching.put_in_place(there, source.record().number)
    assert newest(there) == newest(root)
