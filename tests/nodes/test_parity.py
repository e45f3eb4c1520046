"""Parity over a group of nodes: what it makes again, what is killed on the way, and what must not pass for whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed import levels
from testbed.cluster import Cluster, Stories, cluster
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.flips import Flips
from testbed.noded import MANIFEST
from testbed.places import files_below, flip
from testbed.sweep import some_of

from safepoint import Session, UsageError
from safepoint.nodes import giving, line, nearby, parity, rebuilt, stripes
from safepoint.nodes.asking import Which, ask_range, ask_segments, ask_stripe
from safepoint.nodes.copying import Superseded, Wanted
from safepoint.nodes.giving import Server
from safepoint.nodes.home import groups_of
from safepoint.nodes.line import Lines
from safepoint.nodes.marker import Node
from safepoint.nodes.nearby import held_here
from safepoint.nodes.parity import Group, layouts, make, put
from safepoint.nodes.rebuilt import Rebuilt, rebuildable
from safepoint.nodes.stripes import Brief, Layout, laid_out, layout_of
from safepoint.nodes.transfer import Peer, digest
from safepoint.nodes.turns import Asked
from safepoint.record import Life, dump
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import read_record
from safepoint.restoring.verify import verify
from safepoint.root import Root
from safepoint.tiers import fetching
from safepoint.tiers.names import identity
from safepoint.tiers.place import Unreachable, Vanished

SECRET, HISTORY, LIFE = bytes(range(32)), "0123456789abcdef", 3
IDENTITY = identity(LIFE, 1, HISTORY)
FILES = "u.dat\nbig.dat compress\nlog-*.csv append\nsmall-*.txt\ntree/\nbundle_from = 3\n"


@pytest.fixture(autouse=True)
def small_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (line, stripes, giving):
        monkeypatch.setattr(module, "GRAIN", 512)


def save(work: Path, rank: int, ranks: int, size: int, rng: random.Random) -> None:
    """A set as that rank of a run would have it, with files of each kind: its root, and the table, go to `work`."""
    (apart := work.with_name(f"of-{rank}")).mkdir()
    (apart / ".safepoint").write_text(FILES)
    session = Session(apart)
    (apart / "u.dat").write_bytes(rng.randbytes(size))
    (apart / "big.dat").write_bytes(bytes(size) + rng.randbytes(size // 3))
    (apart / f"log-{rank}.csv").write_bytes(b"row\n" * (size // 4))
    (apart / "tree/empty").mkdir(parents=True)
    for at in range(5):
        (apart / f"small-{at}.txt").write_bytes(rng.randbytes(at * 7))
    session.hide(1)
    session.close()
    one = Root(str(apart))
    record = read_record(one, 1)._replace(rank=rank, ranks=ranks, life=LIFE, history=HISTORY)
    Path(one.record(1)).chmod(0o600)
    Path(one.record(1)).write_bytes(dump(record))
    os.rename(one.path, Root(str(work), rank, ranks).path)
    os.rename(apart / f"log-{rank}.csv", work / f"log-{rank}.csv")


class Nodes:
    """Directories of nodes, one server in each. `sizes`: of the files of each rank, for each node."""

    def __init__(self, top: Path, sizes: list[list[int]], seed: int = 0) -> None:
        rng, self.count, rank = random.Random(seed), sum(map(len, sizes)), 0
        self.work: list[Path] = []
        self.mine: list[dict[int, Root]] = []
        self.servers: list[Server] = []
        for index, of_ranks in enumerate(sizes):
            (work := top / f"node-{index}").mkdir(parents=True)
            self.work.append(work)
            self.mine.append({})
            (work / ".safepoint.d").mkdir()
            for size in of_ranks:
                save(work, rank, self.count, size, rng)
                self.mine[index][rank] = Root(str(work), rank, self.count)
                rank += 1
        self.one = [Root(str(work), 0, self.count) for work in self.work]
        for index in range(len(sizes)):
            self.serve(index)

    def serve(self, index: int) -> None:
        self.servers.append(Server(self.one[index], SECRET, "127.0.0.1", lines=Lines(self.mine[index])))

    @property
    def peers(self) -> tuple[Peer, ...]:
        return tuple(Peer("127.0.0.1", server.port, SECRET) for server in self.servers)

    def make(self, index: int, life: int = LIFE, disk: FaultDisk | None = None) -> None:
        one = self.one[index]
        if disk:
            one = Root(disk.directory, 0, self.count, disk=disk)
        make(
            one, Lines(self.mine[index]), Group(index, life, self.peers), Wanted(IDENTITY, lambda: True), lambda: 0,
            lambda count: None,
        )  # fmt: skip

    def make_all(self, life: int = LIFE) -> None:
        for index in range(len(self.one)):
            self.make(index, life)

    def sources(self, rank: int, *without: int) -> list[Rebuilt]:
        """As a restart finds them, without these nodes."""
        there = [index for index in range(len(self.one)) if index not in without]
        briefs = {index: parity.briefs(self.one[index]) for index in there}
        parts = {index: held_here(self.one[index], ()) for index in there}
        return rebuildable(rank, briefs, parts, self.peers)

    def gives_back(self, rank: int, lost: int, into: Path) -> None:
        """The same bytes, in a new directory."""
        (source,) = self.sources(rank, lost)
        (into / f".safepoint.d/rank-{rank:05d}").mkdir(parents=True)
        back, was = Root(str(into), rank, self.count), self.mine[lost][rank]
        assert source.record() == read_record(was, 1) and source.known == (read_record(was, 1).key, HISTORY)
        source.bring(back)
        fetching.put_in_place(back, 1)
        assert {*verify(back).values()} == {"committed"}
        had, has = ({path: what for path, what in files_below(root.set(1)).items() if what} for root in (was, back))
        del had["taken.json"]
        table = f"log-{rank}.csv"
        rows = (Path(was.work) / table).read_bytes()
        assert has == ({**had, f"append/{table}": rows} if rows else had)

    def stop(self) -> None:
        for server in self.servers:
            server.close()


def largest(root: Root) -> Path:
    """The largest file of a set, which may be changed from now on."""
    every = (path for path in Path(root.set(1)).rglob("*") if path.is_file() and path.suffix != ".json")
    found = max(every, key=lambda path: path.stat().st_size)
    found.chmod(0o600)
    return found


@contextlib.contextmanager
def group(top: Path, sizes: list[list[int]], seed: int = 0) -> Iterator[Nodes]:
    nodes = Nodes(top, sizes, seed)
    try:
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with group(tmp_path, [[3000], [3000], [3000]]) as found:
        yield found


@pytest.fixture
def flips(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Flips:
    monkeypatch.setattr("safepoint.nodes.asking.PAUSE", 0.001)
    return Flips(monkeypatch)


SIZES = [
    [[3000], [3000], [3000]],
    [[9000], [10], [0], [700]],
    [[100, 5000], [4000], [2500, 2500, 1]],
    [[20000], [1]],
    [[4000], [], [3000]],
    [[511], [512], [513], [1025], [7]],
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_parts_of_any_one_node_are_made_again(tmp_path: Path, sizes: list[list[int]]) -> None:
    with group(tmp_path, sizes) as nodes:
        nodes.make_all()
        for lost, mine in enumerate(nodes.mine):
            for rank in mine:
                nodes.gives_back(rank, lost, tmp_path / f"back-{rank}")


@pytest.mark.parametrize("seed", range(3))
def test_what_is_cut_at_random_is_made_again(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [[rng.randrange(6000) for _ in range(rng.choice([1, 1, 2]))] for _ in range(rng.randrange(2, 6))]
    test_the_parts_of_any_one_node_are_made_again(tmp_path, sizes)


def test_each_node_keeps_its_share_of_the_longest_line(tmp_path: Path) -> None:
    """1/(g - 1), and the rest of a grain: this is what it is for."""
    with group(tmp_path, [[30000]] * 4) as nodes:
        nodes.make_all()
        for one in nodes.one:
            (layout,) = layouts(one)
            longest = max(map(layout.length, range(4)))
            size = os.path.getsize(parity.parity_path(one, layout.name))
            assert longest / 3 <= size <= longest / 3 + 512


def test_of_two_nodes_that_are_lost_nothing_is_offered(tmp_path: Path) -> None:
    with group(tmp_path, [[3000], [3000], [3000], [3000]]) as nodes:
        nodes.make_all()
        assert nodes.sources(0, 0) and not nodes.sources(0, 0, 2)


def test_a_node_without_its_parity_is_told(nodes: Nodes) -> None:
    nodes.make(0), nodes.make(1)
    assert not nodes.sources(0, 0) and nodes.sources(2, 2)


@pytest.mark.parametrize("what", ["parity", "layout.json"])
def test_a_damaged_parity_gives_nothing_wrong_back(nodes: Nodes, tmp_path: Path, what: str) -> None:
    nodes.make_all()
    (found,) = Path(nodes.one[1].side).glob(f"held/parity-*/{what}")
    data = bytearray(found.read_bytes())
    for at in range(0, len(data), 64):
        data[at] ^= 4
    found.write_bytes(data)
    if what == "layout.json":
        assert not nodes.sources(0, 0)
        return
    (source,) = nodes.sources(0, 0)
    back = Root(str(tmp_path / "back"), 0, nodes.count)
    os.makedirs(back.path)
    with pytest.raises(Vanished, match="parity is not as it was made"):
        source.bring(back)
    assert not os.path.exists(back.fetched)
    nodes.make(1)  # it is not what it was, so it is made again
    nodes.gives_back(0, 0, tmp_path / "again")


def test_a_part_of_another_node_that_is_damaged_gives_nothing_wrong_back(nodes: Nodes, tmp_path: Path) -> None:
    nodes.make_all()
    stored = largest(nodes.mine[2][2])
    stored.write_bytes(bytes(stored.stat().st_size))
    (source,) = nodes.sources(0, 0)
    back = Root(str(tmp_path / "back"), 0, nodes.count)
    os.makedirs(back.path)
    with pytest.raises(Vanished, match="is not as it was committed"):
        source.bring(back)


def test_parity_is_made_of_what_is_as_it_was_committed(nodes: Nodes) -> None:
    """Else it would protect damage. The node that has it says so, and the others have none."""
    flip(largest(nodes.mine[1][1]), 600)  # u.dat, in the bundle
    with pytest.raises(Damaged):
        nodes.make(1)
    with pytest.raises((Vanished, Unreachable)):
        nodes.make(0)
    assert not layouts(nodes.one[0]) and not layouts(nodes.one[1])


def test_a_file_that_changes_after_it_was_proven_ends_the_stripe(tmp_path: Path) -> None:
    """The rows of a table lie in the program's own file."""
    with group(tmp_path, [[9000], [9000], [9000]]) as nodes:
        nodes.make(0)  # the others have proven what they have
        table = nodes.work[1] / "log-1.csv"
        rows = table.read_bytes()
        table.write_bytes(b"anew" * (len(rows) // 4))
        with pytest.raises((Unreachable, Vanished)):
            nodes.make(2)
        assert not layouts(nodes.one[2])
        table.write_bytes(rows)
        nodes.make(2), nodes.make(1)
        nodes.gives_back(0, 0, tmp_path / "back")


def test_a_set_that_is_not_wanted_any_more_is_left(nodes: Nodes, tmp_path: Path) -> None:
    for name in nodes.mine[2][2].numbers("set"):
        shutil.move(nodes.mine[2][2].set(name), tmp_path / "away")
    looks = iter(range(20))
    wanted = Wanted(IDENTITY, lambda: next(looks) < 10)
    with pytest.raises(Superseded):  # a rank of another node has not committed it
        make(nodes.one[0], Lines(nodes.mine[0]), Group(0, LIFE, nodes.peers), wanted, lambda: 0, lambda _: None)


def test_parity_of_two_lives_is_never_mixed(nodes: Nodes, tmp_path: Path) -> None:
    """After a restart the same set has parity of a new group. Until all of that is there the old one counts."""
    nodes.make_all()
    nodes.make(0, LIFE + 1), nodes.make(1, LIFE + 1)
    (source,) = nodes.sources(0, 0)
    assert source._brief.life == LIFE
    nodes.make(2, LIFE + 1)
    assert len(nodes.sources(0, 0)) == 2
    for one in nodes.one:
        parity.drop_older(one, layouts(one)[0].key, LIFE + 1)
        assert [layout.life for layout in layouts(one)] == [LIFE + 1]
    nodes.gives_back(0, 0, tmp_path / "back")


def test_what_a_node_has_is_not_made_again(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.make_all()
    monkeypatch.setattr(parity, "put", None)
    nodes.make_all()


def test_small_blocks_and_windows_make_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and windows that end within a part, a grain, and a stripe."""
    monkeypatch.setattr(stripes, "BLOCK", 333)
    monkeypatch.setattr(line, "BLOCK", 301)
    monkeypatch.setattr(parity, "BLOCK", 77)
    monkeypatch.setattr(rebuilt, "WINDOW", 777)
    test_the_parts_of_any_one_node_are_made_again(tmp_path, [[100, 5000], [4000], [2500, 2500, 1], [3333]])


def test_no_stripe_is_asked_for_before_all_lines_are_proven(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor before the lock is had: a peer that may not go on would be taken for one that is gone."""
    asked = []
    real = parity.ask_stripe

    def ask(*arguments: object) -> object:
        proven = [bool(server._lines and server._lines._last and server._lines._last[1]._sums)
                  for server in nodes.servers[1:]]  # fmt: skip
        free = Root(str(nodes.work[0])).disk.lock(f"{nodes.one[0].side}/held/parity.lock")
        asked.append((proven, free))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(parity, "ask_stripe", ask)
    nodes.make(0)
    assert asked == [([True, True], None)] * 2


@pytest.mark.parametrize("what", ["ask_range", "ask_layout"])
def test_a_node_that_does_not_answer_at_once_is_asked_again(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    nodes.make_all()
    real, turn = getattr(rebuilt, what), iter(range(10**6))

    def flaky(*arguments: object) -> object:
        if next(turn) % 3:
            raise Unreachable("Connection reset by peer")
        return real(*arguments)

    monkeypatch.setattr(rebuilt, what, flaky)
    monkeypatch.setattr(nearby, "PAUSE", 0.001)
    next(turn)
    nodes.gives_back(0, 0, tmp_path / "back")


def test_a_node_that_never_answers_is_told_and_an_old_set_is_not_asked_for(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has may be nowhere else."""
    nodes.make_all()
    nodes.servers[2].close()
    monkeypatch.setattr(nearby, "PATIENT", 0.2)
    monkeypatch.setattr(nearby, "PAUSE", 0.01)
    monkeypatch.setattr("safepoint.nodes.asking.PAUSE", 0.001)
    away: list[Unreachable] = []
    assert not [*nearby.known(nodes.sources(0, 0), 0, lambda source, error: away.append(error))] and away
    assert not [*nearby.known(nodes.sources(0, 0), 1 << 62, None)]  # type: ignore[arg-type]  # it is not asked


def test_of_two_places_that_have_a_part_the_whole_one_is_taken(nodes: Nodes, tmp_path: Path) -> None:
    """After a restart on other nodes a part lies where its rank ran, and where it runs."""
    nodes.make_all()
    for name in (f"rank-{2:05d}", f"../log-{2}.csv"):
        path = Path(nodes.work[2], ".safepoint.d", name)
        target = Path(nodes.work[0], ".safepoint.d", name)
        shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    stray = Root(str(nodes.work[0]), 2, nodes.count)
    largest(stray).write_bytes(b"damaged")
    nodes.gives_back(1, 1, tmp_path / "back")


def test_without_numpy_a_part_that_must_be_made_again_is_as_good_as_away(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the setting is another one by now."""
    nodes.make_all()
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setattr(nearby, "PATIENT", 0.0)
    away: list[Unreachable] = []
    assert not [*nearby.known(nodes.sources(0, 0), 0, lambda source, error: away.append(error))]
    assert "parity needs the package numpy" in str(*away)


def test_no_room_is_known_before_a_byte_travels(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "room", lambda path: 4000)
    with pytest.raises(Unreachable, match="has no room: 4000 are free"):
        nodes.make(0)


def test_a_range_that_nobody_would_ask_for_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    nodes.make_all()
    peer, sum_ = nodes.peers[0], layouts(nodes.one[0])[0].lines[0][0].sum
    own = Which(0, 1, "own")
    (tmp_path / "secret").write_bytes(b"x")
    with pytest.raises(Unreachable):
        ask_range(peer, own, sum_, 0, giving.MOST + 1)
    with pytest.raises(Vanished):
        ask_range(peer, own, "0" * 64, 0, 10)  # another record
    for name in ("../../secret", f"parity-{IDENTITY}-00003/../../../secret", "", "parity.lock"):
        with pytest.raises(Vanished):
            ask_range(peer, Which(0, 0, "parity", name), "", 0, 10)
    assert ask_range(peer, own, sum_, 1 << 40, (1 << 40) + 5) == b""
    for identity_ in ("", "../x", IDENTITY.upper()):
        with pytest.raises(Vanished):
            ask_segments(peer, identity_)
    rows = ask_segments(peer, IDENTITY)
    said = digest(json.dumps(rows).encode())
    with pytest.raises(Unreachable), ask_stripe(peer, IDENTITY, said, 0, 1 << 40):
        pass
    with pytest.raises(Unreachable), ask_stripe(peer, IDENTITY, said, 3, 700):
        pass
    with pytest.raises(Vanished), ask_stripe(peer, IDENTITY, "0" * 64, 0, 512):
        pass


def test_a_layout_that_cannot_be_is_refused(made: tuple[Layout, bytes]) -> None:
    layout, _ = made
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda it: it.update(lines=it["lines"][:1]), lambda it: it.update(chunk=512), lambda it: it.update(chunk=0),
        lambda it: it.update(at=3), lambda it: it.update(at=-1), lambda it: it.update(identity="../../x"),
        lambda it: it["lines"][0][0].__setitem__(3, -5),
        lambda it: it["lines"][0][0].__setitem__(0, 1),  # one rank twice
        lambda it: it["lines"][0].append("x"), lambda it: it.pop("lines"),
    ]  # fmt: skip
    for at, change in enumerate(changes):
        content = json.loads(json.dumps(layout._asdict()))
        assert layout_of({**content}) == layout
        change(content)
        with pytest.raises(stripes.Unsealed):
            pytest.fail(f"change {at}: {layout_of(content)}")


# One bit that is another one: on the way, and on a disk.


def _made_with_flips(nodes: Nodes, flips: Flips, at: int) -> bool:
    """Whether parity came to be though one bit was changed. It is whole, or there is none."""
    flips.at(at)
    with contextlib.suppress(Unreachable, Vanished, Damaged):
        nodes.make(0)
    (flips.off(), nodes.servers[1]._forget(), nodes.servers[2]._forget())
    return bool(layouts(nodes.one[0]))


@pytest.mark.parametrize("step", [pytest.param(31, marks=pytest.mark.proof), 997])
def test_a_bit_that_changes_on_the_way_makes_no_parity_of_other_bytes(
    nodes: Nodes, flips: Flips, step: int
) -> None:  # fmt: skip
    """Nobody would know before it is needed. The next try makes it."""
    nodes.make(0)
    (layout,) = layouts(nodes.one[0])
    path, length = Path(parity.parity_path(nodes.one[0], layout.name)), flips.count
    whole, made = path.read_bytes(), 0
    for at in range(64, length, step):
        shutil.rmtree(path.parent)
        if _made_with_flips(nodes, flips, at):
            made += 1
            assert path.read_bytes() == whole and layouts(nodes.one[0]) == [layout], at
        else:
            nodes.make(0)
            assert path.read_bytes() == whole
    assert made < length / step / 2  # a greeting is said again


@pytest.mark.parametrize("count", [pytest.param(100, marks=pytest.mark.proof), 10])
def test_a_bit_that_changes_while_a_part_is_made_again_costs_a_request(
    nodes: Nodes, flips: Flips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """And not the set: it is asked again."""
    nodes.make_all()
    monkeypatch.setattr(nearby, "PAUSE", 0.001)
    flips.begin()
    nodes.gives_back(0, 0, tmp_path / "back")
    for turn, at in enumerate(range(64, flips.count, flips.count // count)):
        flips.at(at)
        nodes.gives_back(0, 0, tmp_path / f"back-{turn}")
        assert flips.done


def test_a_bit_that_changes_in_a_parity_on_the_disk_is_noticed_and_it_is_made_again(
    nodes: Nodes, tmp_path: Path
) -> None:  # fmt: skip
    """In each grain; before it is read for the first time, and after."""
    nodes.make_all()
    (layout,) = layouts(nodes.one[1])
    path = Path(parity.parity_path(nodes.one[1], layout.name))
    which = Which(0, 0, "parity", layout.name)
    for proven in (False, True):
        for at in range(0, layout.size, 512):
            if proven:
                ask_range(nodes.peers[1], which, "", at, at + 1)
            before = path.stat()
            flip(path, at)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a disk would do it
            with pytest.raises(Vanished, match=rf"{path.name} is not as it was"):
                ask_range(nodes.peers[1], which, "", at, at + 1)
            nodes.make(1)
            assert layouts(nodes.one[1]) == [layout]
    nodes.gives_back(0, 0, tmp_path / "back")


def test_a_bit_that_changes_in_a_layout_is_told_and_the_parity_is_made_again(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.make_all()
    (layout,) = layouts(nodes.one[1])
    path = Path(parity.layout_path(nodes.one[1], layout.name))
    for at in range(0, path.stat().st_size, 37):
        flip(path, at)
        caplog.clear()
        assert not nodes.sources(0, 0)  # as after the loss of the first node
        assert [str(path.relative_to(nodes.work[1])) in each.getMessage() for each in caplog.records] == [True]
        with pytest.raises(Vanished):
            ask_range(nodes.peers[1], Which(0, 0, "parity", layout.name), "", 0, 1)
        nodes.make(1)
        assert layouts(nodes.one[1]) == [layout] and nodes.sources(0, 0)


# What is killed on the way.


def keep(one: Root, layout: Layout, data: bytes, floor: int = 0) -> None:
    with parity.alone(one):
        put(one, layout, [memoryview(data)], lambda: floor)


def _put(disk: FaultDisk, layout: Layout, data: bytes) -> None:
    keep(Root(disk.directory, 0, 3, disk=disk), layout, data)


def _on(where: Path, **how: int) -> FaultDisk:
    (where / ".safepoint.d").mkdir(parents=True)
    return FaultDisk(str(where), **how)  # type: ignore[arg-type]


def _layout(nodes: Nodes) -> tuple[Layout, bytes]:
    nodes.make(0)
    (layout,) = layouts(nodes.one[0])
    return layout._replace(sum=""), Path(parity.parity_path(nodes.one[0], layout.name)).read_bytes()


def _whole(directory: str, layout: Layout, data: bytes) -> bool:
    """Whether it is there; whatever else is there must not pass for it."""
    one = Root(directory, 0, 3)
    found = layouts(one)
    for each in found:
        assert each._replace(sum="") == layout
        lying = Path(parity.parity_path(one, each.name))
        assert lying.exists() and lying.read_bytes() == data, "a parity of other bytes"
    return bool(found)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Layout, bytes]]:
    with group(tmp_path / "nodes", [[3000], [3000], [3000]]) as nodes:
        yield _layout(nodes)


def test_one_that_is_killed_at_any_operation_is_whole_or_none(made: tuple[Layout, bytes], tmp_path: Path) -> None:
    _put(disk := _on(tmp_path / "count"), *made)
    length, whole = len(disk.record.ops), 0
    for at in range(length):
        with contextlib.suppress(Killed):
            _put(disk := _on(tmp_path / f"at-{at}", kill_at=at), *made)
        disk.end()
        whole += _whole(disk.directory, *made)
        _put(FaultDisk(disk.directory), *made)  # the next try
        assert _whole(disk.directory, *made)
        assert sorted(os.listdir(f"{disk.directory}/.safepoint.d/held")) == [made[0].name, "parity.lock"]
    assert length > 12 and 0 < whole < length


def test_one_that_was_told_survives_a_power_cut(made: tuple[Layout, bytes], tmp_path: Path) -> None:
    (where := tmp_path / "disk").mkdir()
    disk = FaultDisk(str(where))
    disk.mkdir(f"{where}/.safepoint.d")
    disk.sync_dir(str(where))
    _put(disk, *made)
    length, cuts = len(disk.record.ops), 0
    (into := tmp_path / "cut").mkdir()
    for image in images(disk.record, str(into), promised=lambda ops: int(ops == length)):
        assert _whole(image.directory, *made) or image.ops < length, image
        cuts += 1
    assert cuts > 30


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_one_whose_disk_fails_is_not_told(made: tuple[Layout, bytes], tmp_path: Path, error: int) -> None:
    _put(disk := _on(tmp_path / "count"), *made)
    for at in range(len(disk.record.ops)):
        try:
            _put(disk := _on(tmp_path / f"at-{at}", fail_at=at, error=error), *made)
        except OSError:
            disk.end()
            assert not _whole(disk.directory, *made), at
            continue
        disk.end()
        assert _whole(disk.directory, *made), at  # it could do without


def test_a_flush_that_failed_is_not_asked_again(made: tuple[Layout, bytes], tmp_path: Path) -> None:
    """The kernel says once that it could not. So nothing is left that the next try would take for made."""
    _put(disk := _on(tmp_path / "count"), *made)
    flushes = [at for at, op in enumerate(disk.record.ops) if op.startswith("sync")]
    for at in flushes:
        with pytest.raises(OSError):
            _put(disk := _on(tmp_path / f"at-{at}", fail_at=at, error=errno.EIO), *made)
        disk.end()
        assert not _whole(disk.directory, *made), at
    assert len(flushes) >= 4


def test_what_was_in_the_making_at_a_kill_goes(made: tuple[Layout, bytes], tmp_path: Path) -> None:
    _put(disk := _on(tmp_path / "w"), *made)
    (new := Path(disk.directory, ".safepoint.d/held/parity.new")).mkdir()
    (new / "parity").write_bytes(b"half of it")
    assert parity.drop_older(Root(disk.directory, 0, 3), 0, 0)
    assert not new.exists() and _whole(disk.directory, *made)


def test_one_that_is_removed_is_whole_or_none_at_any_kill(made: tuple[Layout, bytes], tmp_path: Path) -> None:
    layout, data = made

    def removed(where: Path, **how: int) -> FaultDisk:
        (where / ".safepoint.d").mkdir(parents=True)
        keep(Root(str(where), 0, 3), layout, data)
        disk = FaultDisk(str(where), **how)  # type: ignore[arg-type]
        with contextlib.suppress(Killed):
            parity.drop_older(Root(str(where), 0, 3, disk=disk), layout.key + 1, 0)
        disk.end()
        return disk

    length = len((disk := removed(tmp_path / "count")).record.ops)
    assert not _whole(disk.directory, *made)
    for at in range(length):
        disk = removed(tmp_path / f"at-{at}", kill_at=at)
        _whole(disk.directory, *made)
        parity.drop_older(Root(disk.directory, 0, 3), layout.key + 1, 0)
        assert os.listdir(f"{disk.directory}/.safepoint.d/held") == ["parity.lock"]


def test_what_is_between_the_last_on_all_and_a_newer_one_goes(made: tuple[Layout, bytes], tmp_path: Path) -> None:
    layout, data = made
    one = Root(_on(tmp_path / "w").directory, 0, 3)
    numbered = [layout._replace(identity=identity(LIFE, number, HISTORY)) for number in (1, 2, 3, 4)]
    for each in numbered:
        keep(one, each, data, numbered[1].key)
    assert [it.identity for it in layouts(one)] == [numbered[at].identity for at in (0, 1, 3)]
    assert parity.newest(one) == numbered[3].key


def test_two_processes_do_not_make_it_together(
    made: tuple[Layout, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _on(tmp_path / "w")
    _put(disk, *made)
    release = Root(disk.directory).disk.lock(f"{disk.directory}/.safepoint.d/held/parity.lock")
    assert release
    monkeypatch.setattr(parity, "LONGEST_WAIT", 0.2)
    with pytest.raises(Unreachable, match="another process of this node"):
        _put(disk, *made)
    assert not parity.drop_older(Root(disk.directory), 1 << 62, 0)  # it is space, and is tried again
    release()
    assert _whole(disk.directory, *made)


# Broken on purpose.


def flushes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "sync", lambda *_: None)


def names_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = parity.sync
    waiting: list[tuple[object, ...]] = []
    monkeypatch.setattr(parity, "sync", lambda *what: waiting.append(what))
    rename = FaultDisk.rename

    def renamed(self: FaultDisk, source: str, target: str) -> None:
        rename(self, source, target)
        for disk, files, _ in waiting:
            there = [path.replace(source, target) for path in files]  # type: ignore[attr-defined]
            flush(disk, there, [target])  # type: ignore[arg-type]
        waiting.clear()

    monkeypatch.setattr(FaultDisk, "rename", renamed)


def does_not_flush_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sync_dir = FaultDisk.sync_dir
    monkeypatch.setattr(FaultDisk, "sync_dir", lambda self, path: path.endswith("held") or sync_dir(self, path))


def does_not_flush_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    sync_dir = FaultDisk.sync_dir
    monkeypatch.setattr(FaultDisk, "sync_dir", lambda self, path: path.endswith(".d") or sync_dir(self, path))


@pytest.mark.parametrize(
    "mutant", [flushes_nothing, names_it_first, does_not_flush_its_name, does_not_flush_the_way],
    ids=lambda mutant: mutant.__name__,
)  # fmt: skip
def test_a_parity_that_is_told_too_early_is_noticed(
    made: tuple[Layout, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test_one_that_was_told_survives_a_power_cut(made, tmp_path)


def test_a_removal_that_begins_with_the_bytes_is_noticed(
    made: tuple[Layout, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = parity._remove

    def remove(one: Root, name: str) -> None:
        one.disk.remove(parity.parity_path(one, name))
        real(one, name)

    monkeypatch.setattr(parity, "_remove", remove)
    with pytest.raises(AssertionError):
        test_one_that_is_removed_is_whole_or_none_at_any_kill(made, tmp_path)


def test_a_name_without_a_life_is_noticed(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New parity would take the place of the old one node by node."""
    monkeypatch.setattr(Layout, "name", property(lambda self: f"parity-{self.identity}-00001"))
    monkeypatch.setattr(Brief, "name", property(lambda self: f"parity-{self.identity}-00001"))
    with pytest.raises((AssertionError, ValueError)):
        test_parity_of_two_lives_is_never_mixed(nodes, tmp_path)


def test_parity_of_unproven_bytes_is_noticed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line.Strip, "proven", lambda self: self.between(0, self.segment.size))
    with pytest.raises(pytest.fail.Exception):
        test_parity_is_made_of_what_is_as_it_was_committed(nodes)


def test_what_hinders_the_set_before_says_nothing_of_this_one() -> None:
    """It is said late: `hide` has begun with a newer set by then."""
    run = levels.Run(levels.World(0, xor=True), [0, 1, 2], Life(LIFE, HISTORY), 1)
    near = run.ranks[0].near
    near._home.nodes = [Node(f"n{at}", "", "", ()) for at in range(3)]
    near._home.here = 0
    near._begin_copy(Asked(2, identity(LIFE, 2, HISTORY)))
    near._hear("uncopied", f"{IDENTITY} the set is gone")
    assert near._why_no_copy == ""
    near._hear("uncopied", f"{identity(LIFE, 2, HISTORY)} node n2 is away")
    assert near._why_no_copy == "node n2 is away" and near._partner_text == "parity with n1, n2"


# Groups.


class Drawn(NamedTuple):
    domains: list[int]
    most: int


@given(st.builds(Drawn, st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(3, 32)))
def test_groups_have_no_two_nodes_of_one_domain(drawn: Drawn) -> None:
    nodes = [Node(f"h{at}", "", f"d{domain}", ()) for at, domain in enumerate(drawn.domains)]
    groups = groups_of(nodes, drawn.most)
    if not groups:  # one domain has more than half of the nodes
        most = max(drawn.domains.count(domain) for domain in drawn.domains)
        assert 2 * max(most, -(-len(nodes) // drawn.most)) > len(nodes)
        return
    assert sorted(node for found in groups for node in found) == list(range(len(nodes)))
    sizes = [len(found) for found in groups]
    assert min(sizes) >= 2 and max(sizes) <= drawn.most and max(sizes) - min(sizes) <= 1
    for found in groups:
        assert len({nodes[node].domain for node in found}) == len(found)


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=9))
def test_every_byte_of_every_line_is_in_one_parity(lengths: list[int]) -> None:
    lines = [[line.Segment(at, 0, 0, length, "")] for at, length in enumerate(lengths)]
    for node, length in enumerate(lengths):
        found = []
        for holder in range(len(lengths)):
            layout = laid_out(IDENTITY, LIFE, holder, lines)
            if holder != node:
                begin, end = layout.stripe(node, holder)
                assert end - begin <= layout.size <= layout.chunk
                found += range(begin, end)
        assert sorted(found) == list(range(length))


# The whole of it.


STORIES, XOR = Stories(), MANIFEST.replace("partner = on", "partner = xor 4")


@STORIES.on(XOR)
def the_last_node_is_lost_and_costs_nothing_and_so_does_the_next(nodes: Cluster) -> None:
    the_first_node_is_lost_and_costs_nothing_and_so_does_the_next(nodes, "d")


@STORIES.on(XOR)
def the_first_node_is_lost_and_costs_nothing_and_so_does_the_next(nodes: Cluster, lost: str = "a") -> None:
    before = nodes.run("abcd", 6, 0.02, "partner")
    assert before.code == 0 and before.last("partner") == 5, before
    assert not any(path.is_dir() and path.name.startswith("rank") for path in _held(nodes, "a"))
    nodes.empty_place()
    nodes.lose(lost)
    done = nodes.run("abcd".replace(lost, "e"), 9, 0.02, "partner")
    assert done.code == 0 and done.last("restored") == 5, done
    assert "from the parity on other nodes" in done.err
    nodes.empty_place()
    nodes.lose("b" if lost == "a" else "a")
    where = "ecdf" if lost in "ab" else "bcdef".replace(lost, "")
    done = nodes.run(where, 12, 0.02, "partner")
    assert done.code == 0 and done.last("restored") == 8, done
    assert "from the parity on other nodes" in done.err


def _held(nodes: Cluster, node: str) -> list[Path]:
    return list((nodes.work(node) / ".safepoint.d/held").iterdir())


@STORIES.on(XOR)
def ranks_that_share_a_node_are_lost_with_it_and_made_again(nodes: Cluster) -> None:
    nodes.run("aabbcc", 5, 0.02, "partner")
    nodes.empty_place()
    nodes.lose("b")
    done = nodes.run("aaddcc", 7, 0.02, "partner")
    assert done.code == 0 and done.last("restored") == 4, done
    assert "ranks 2, 3 of 6" in done.err and "from the parity on other nodes" in done.err


@STORIES.on(XOR)
def a_part_that_is_damaged_on_its_own_disk_is_made_again(nodes: Cluster) -> None:
    nodes.run("abcd", 5, 0.02, "partner")
    nodes.empty_place()
    root = nodes.root("c", 2, 4)
    for number in root.numbers("set"):
        for stored in Path(root.set(number)).rglob("z-2.dat"):
            stored.chmod(0o600)
            stored.write_bytes(bytes(stored.stat().st_size))
    done = nodes.run("abcd", 7, 0.02, "partner")
    assert done.code == 0 and done.last("restored") == 4, done
    assert "from the parity on other nodes" in done.err


@STORIES.on(XOR)
def ranks_that_run_elsewhere_and_a_lost_node(nodes: Cluster) -> None:
    """The parts of the others are where they ran, and so is the parity."""
    nodes.run("abcd", 5, 0.02, "partner")
    nodes.empty_place()
    nodes.lose("d")
    done = nodes.run("bcae", 7, 0.02, "partner")
    assert done.code == 0 and done.last("restored") == 4, done
    assert "rank 3 from the parity on other nodes" in done.err


@STORIES.on(XOR)
def a_finished_run_leaves_no_parity(nodes: Cluster) -> None:
    done = nodes.run("abc", 4, 0.05, "finish")
    assert done.code == 0, done
    nodes.end()
    for node in "abc":
        assert [path.name for path in _held(nodes, node)] in ([], ["parity.lock"])


@STORIES.on(XOR)
def a_run_with_another_setting_finds_its_sets_without_numpy(nodes: Cluster) -> None:
    nodes.run("abc", 5, 0.02, "partner")
    nodes.empty_place()
    (nodes.start / ".safepoint").write_text(MANIFEST)
    (none := nodes.top / "none/numpy").mkdir(parents=True)
    (none / "__init__.py").write_text("raise ModuleNotFoundError('none here')")
    with pytest.MonkeyPatch.context() as without:
        without.setenv("PYTHONPATH", f"{none.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        done = nodes.run("bca", 6)
        assert done.code == 0 and done.last("restored") == 4, done
        nodes.end()
        nodes.lose("c")  # now it would be needed, or the copies of the newer sets are
        done = nodes.run("abd", 7)
    assert done.last("restored") == 5 or "needs the package numpy" in done.err, done


@pytest.mark.proof
@pytest.mark.parametrize(("story", "manifest"), some_of(STORIES, 1, 2), ids=lambda it: getattr(it, "__name__", ""))
def test_runs_with_parity(story: Callable[[Cluster], None], manifest: str, tmp_path: Path) -> None:
    with cluster(tmp_path, manifest) as found:
        story(found)


def test_what_cannot_be_protected_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMAIN", "a")
    with cluster(tmp_path, XOR) as found:
        monkeypatch.setenv("DISK", str(found.disk("a")))
        with pytest.raises(UsageError, match=r"the one node is of too few domains.*nothing was changed"):
            Session(found.start)
        monkeypatch.setattr("safepoint.nodes.session.find_spec", lambda name: None)
        with pytest.raises(UsageError, match="needs the package numpy"):
            Session(found.start)
