"""State in memory: variables by name, one file that numpy alone can read, and the sets of it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from testbed.disks import Failing, NoRoom
from testbed.faultdisk import FaultDisk, Killed, images
from testbed.sessions import Start, contents, write
from testbed.waiting import wait_for

import safepoint
from safepoint import FormatError, MissingFilesError, SaveError, UsageError
from safepoint.disk import Disk
from safepoint.root import Root
from safepoint.state import npz, one_file

SOURCE = Path(safepoint.__file__).parents[1]


def generators() -> dict[str, Any]:
    found: dict[str, Any] = {name: np.random.Generator(getattr(np.random, name)(7)) for name in npz.BIT_GENERATORS}
    found |= {"old": np.random.RandomState(3), "python": random.Random(4)}
    for each in found.values():  # in the middle of what they keep back
        each.gauss(0, 1) if isinstance(each, random.Random) else each.normal()
    found["PCG64"].integers(0, 10, dtype=np.uint32)
    return found


def drawn(generator: Any) -> list[Any]:
    if isinstance(generator, random.Random):
        return [generator.random(), generator.gauss(0, 1)]
    more = [child.random() for child in generator.spawn(2)] if hasattr(generator, "spawn") else []
    return [generator.normal(), *generator.integers(0, 99, 3, dtype=np.uint32).tolist(), *more] if more else [
        generator.normal(), generator.randint(99)
    ]  # fmt: skip


STATE: dict[str, Any] = {
    "u": np.arange(6.0)[::2],
    "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "empty": np.zeros((0, 3), np.complex64),
    "zero_d": np.array(3),
    "records": np.zeros(2, "i4,f8"),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "scalar": np.float32(0.1),
    "numbers": [0, -1, 2**200, 0.1, float("inf"), -0.0, 1 + 2j, True, None],
    "texts": ["", "é\ud800\0", b"\0\xff", bytearray(b"x")],
    "nested": {"a/b": (1, [np.ones(2), {"..": np.zeros(1)}]), 3: "x", (1, "t"): {}, None: ()},
    "file": 1,
    "safepoint": np.ones(1),
    "self": "is no name of ours",
    "a.npy": np.ones(2),
    "a": {
        "": np.zeros(3),
        ".npy": np.full(2, 7.0),
        "b.npy.npy": np.zeros(1),
        "b.npy": np.ones(1),
        "b": np.full(1, 2.0),
    },
    "safepoint.npy": np.ones(4),
    "long": {"k" * 70_000: np.ones(1)},
    "of_numpy": [np.str_("x\0"), np.bytes_(b"a\0")],
}


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, (np.ndarray, np.generic)) and not isinstance(one, (str, bytes)):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            same(*pair)
    else:
        assert repr(one) == repr(other)  # -0.0 and nan


@pytest.mark.usefixtures("clean_slate")
def test_all_that_is_kept_comes_back_and_numpy_alone_can_read_the_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert safepoint.load_state() is None
    assert Path(".safepoint").read_text() == "state.npz\n"
    random_ones = generators()
    point = safepoint.save_state(5, **STATE, **random_ones)
    assert (point.step, point.files) == (5, ("state.npz",))
    safepoint.close()
    state = safepoint.load_state()
    assert state is not None and (state.step, state.finished) == (5, False)
    for name, value in STATE.items():
        same(state[name], value)
    for name, generator in random_ones.items():
        assert drawn(state[name]) == drawn(generator), name
    assert list(state) == [*STATE, *random_ones]
    with np.load("state.npz", allow_pickle=False) as members:
        assert members["u"].tolist() == [0, 2, 4] and members["nested/a/b/1/0"].tolist() == [1, 1]
    with zipfile.ZipFile("state.npz") as archive:
        assert archive.testzip() is None
        assert not [name for name in archive.namelist() if name.startswith("/") or ".." in name.split("/")]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, max_side=3)),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner)
    | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_whatever_is_kept_comes_back(state: dict[str, Any]) -> None:
    path = f"/dev/shm/state-{os.getpid()}.npz" if Path("/dev/shm").is_dir() else f"state-{os.getpid()}.npz"
    npz.Archive(state).write(Disk(), path)
    try:
        same(npz.read(path), state)
    finally:
        os.unlink(path)


def loops() -> list[Any]:
    found: list[Any] = [1]
    found.append({"inner": found})
    return found


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (object(), "save_state: x: a object cannot be kept; kept are arrays of numpy, numbers"),
        ([1, {"k": {1, 2}}], "save_state: x/1/k: a set cannot be kept"),
        (np.array([object()]), "save_state: x: an array of Python objects"),
        (np.zeros(1, [("a", "O")]), "save_state: x: an array of Python objects"),
        (np.ma.ones(3), "save_state: x: a numpy.*MaskedArray cannot be kept"),
        (lambda: 0, "save_state: x: a function cannot be kept"),
        (loops(), "save_state: x/1/inner contains itself"),
        ({(1, frozenset()): 2}, "save_state: x, a key/1: a frozenset cannot be kept"),
        (type("Mine", (dict,), {})(), r"save_state: x: a .*Mine cannot be kept"),
    ],
)
def test_what_cannot_be_kept_is_named_and_nothing_is_changed(start: Start, work: Path, value: Any, where: str) -> None:
    session = start("state.npz\n")
    session.save_state(0, x=1)
    session.wait()
    with pytest.raises(UsageError, match=where):
        session.save_state(1, good=np.ones(3), x=value)
    assert contents(work) == {} and [each.step for each in session.sets()] == [0]
    session.save_state(2, x=3)
    session.close()
    state = start(restore=False).load_state()
    assert state == {"x": 3} and state and state.step == 2


def test_what_the_manifest_does_not_list_is_said(start: Start, work: Path) -> None:
    session = start("u.dat\n")
    with pytest.raises(UsageError, match=r"\.safepoint does not list state\.npz: add it as a line of its own"):
        session.save_state(0, x=1)
    write(work, u_dat="0")
    session.hide(0, wait=True)
    session.close()
    session = start("u.dat\nstate.npz\n", restore=False)
    with pytest.raises(UsageError, match="save_state before load_state, in a directory that has save points"):
        session.save_state(0, x=1)
    with pytest.raises(MissingFilesError, match=r"set 1 has no state\.npz: it was saved without save_state"):
        session.load_state()
    with pytest.raises(UsageError, match=r"save_state: step must be an integer, not 1\.5"):
        session.save_state(1.5, x=1)  # type: ignore[arg-type]
    assert contents(work) == {"u.dat": "0"}


@pytest.mark.parametrize("damage", ["another archive", "text", "cut", "format 9"])
def test_a_file_that_is_none_of_ours_is_refused_with_its_name(start: Start, work: Path, damage: str) -> None:
    session = start("state.npz\n")
    path = work / "state.npz"
    if damage == "another archive":
        np.savez(path, u=1)
    elif damage == "format 9":
        np.savez(path, safepoint=np.frombuffer(b'{"format": 9, "state": []}', np.uint8))
    else:
        npz.Archive({"u": np.ones(9)}).write(Disk(), str(path))
        path.write_bytes(b"text" if damage == "text" else path.read_bytes()[:-9])
    session.hide(0, wait=True)
    session.close()
    with pytest.raises(FormatError, match=r"state\.npz"):
        start(restore=False).load_state()


def npy(shape: str, data: bytes = b"", kind: str = "<f8") -> bytes:
    """A member of an archive, with a head that says what it likes."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def index_of(text: bytes) -> bytes:
    return npy(f"({len(text)},)", text, "|u1")


ARRAY = index_of(b'{"format": 1, "state": [["u", {"array": "u"}]]}')
DEEP = b'{"format": 1, "state": [["u", %b]]}' % (b"[" * 900 + b"]" * 900)
POOL = b'{"dict": [["entropy", 1], ["spawn_key", {"tuple": []}], ["pool_size", 9000000000]]}'
GENERATOR = b'{"format": 1, "state": [["u", {"Generator": [{"dict": [["bit_generator", "PCG64"]]}, %b]}]]}'
HOSTILE: dict[str, tuple[bytes, bytes, str]] = {  # the index, an array, and what is said
    "lists in lists": (index_of(b"[" * 100_000), b"", "nested too deeply"),
    "lists in a value": (index_of(DEEP), b"", ""),
    "a head without its array": (ARRAY, npy("(1000000000000,)"), "names an array of"),
    "more than any memory": (ARRAY, npy(f"({1 << 70},)"), "names an array of"),
    "empty values": (ARRAY, npy("(1000000000000,)", kind="<U0"), "names an array of"),
    "a bomb": (ARRAY, npy("(9000000,)", bytes(72_000_000)), "compressed"),
    "a large pool": (index_of(GENERATOR % POOL), b"", "so large a pool"),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_what_a_file_says_of_itself_takes_no_memory(tmp_path: Path, hostile: tuple[dict[str, bytes], int, str]) -> None:
    index, array, why = hostile
    path = tmp_path / "state.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if why == "compressed" else zipfile.ZIP_STORED) as archive:
        archive.writestr("safepoint.npy", index)
        archive.writestr("u.npy", array)
    tracemalloc.start()
    try:
        if why:
            with pytest.raises(FormatError, match=rf"state\.npz: no state that save_state has written: .*{why}"):
                npz.read(str(path))
        else:
            with contextlib.suppress(FormatError):
                npz.read(str(path))
        assert tracemalloc.get_traced_memory()[1] < 20 * max(1 << 20, path.stat().st_size)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("field", ["compression", "encrypted", "shared bytes"])
def test_an_archive_of_another_kind_is_no_traceback(tmp_path: Path, field: str) -> None:
    """A way to pack that Python does not know, a member that is encrypted, two names of the same bytes."""
    path = tmp_path / "state.npz"
    npz.Archive({"u": np.ones(90_000), "v": np.ones(90_000)}).write(Disk(), str(path))
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")
    if field == "shared bytes":
        path.write_bytes(data[: at + 20] + struct.pack("<II", len(data), len(data)) + data[at + 28 :])
    else:
        place, value = (10, 99) if field == "compression" else (8, 1)
        path.write_bytes(data[: at + place] + struct.pack("<H", value) + data[at + place + 2 :])
    with pytest.raises(FormatError, match=r"state\.npz: no state that save_state has written"):
        npz.read(str(path))


@pytest.mark.usefixtures("clean_slate")
def test_the_default_session_is_begun_where_it_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"save_state before init"):
        safepoint.save_state(0, x=1)
    assert safepoint.load_state(tmp_path, keep=3) is None
    for arguments in ((tmp_path.parent, {}), (tmp_path, {"keep": 3})):
        with pytest.raises(UsageError, match="a session was begun before: call it without them"):
            safepoint.load_state(arguments[0], **arguments[1])
    assert safepoint.load_state(tmp_path) is None  # as a cell of a notebook that is run again
    for step in range(4):
        safepoint.save_state(step, x=step)
        safepoint.wait()
    assert [each.step for each in safepoint.sets()] == [3, 2, 1]
    assert safepoint.load_state() == {"x": 3}
    safepoint.finish(3)
    state = safepoint.load_state(tmp_path)
    assert state == {"x": 3} and state and state.finished and state.step == 3


def stepping(directory: Path, disk: Disk, steps: int = 3) -> list[int]:
    """A program with its state in memory; the steps for which it knows that they are durable."""
    session = safepoint.Session(directory, disk=disk)
    state = session.load_state() or safepoint.State(u=np.zeros(4), rng=np.random.default_rng(1))
    step, u, rng, durable = state.step or 0, state["u"], state["rng"], []
    while step < steps:
        u, step = u + rng.normal(size=4), step + 1
        session.save_state(step, u=u, rng=rng)
        session.wait()
        durable.append(step)
    session.close()
    return durable


def expected(step: int) -> list[float]:
    rng, u = np.random.default_rng(1), np.zeros(4)
    for _ in range(step):
        u = u + rng.normal(size=4)
    return u.tolist()  # type: ignore[no-any-return]


def goes_on(directory: Path, disk: Disk) -> int:
    session = safepoint.Session(directory, disk=disk)
    state = session.load_state()
    assert state is None or state["u"].tolist() == expected(state.step or 0)
    session.close()
    return (state.step or 0) if state is not None else 0


def begun(directory: Path) -> Path:
    directory.mkdir()
    (directory / ".safepoint").write_text("state.npz\n")
    return directory


def test_killed_at_any_operation_the_state_is_whole(tmp_path: Path) -> None:
    """G1, G2k: also while it is written."""
    whole = FaultDisk(begun(tmp_path / "whole"))
    assert stepping(tmp_path / "whole", whole) == [1, 2, 3]
    came = set()
    for at in whole.record.changing[::3]:
        directory = begun(tmp_path / f"killed-{at}")
        disk = FaultDisk(directory, kill_at=at)
        with contextlib.suppress(Killed):
            stepping(directory, disk)
        disk.end()
        came.add(goes_on(directory, FaultDisk(directory, before=disk)))
        shutil.rmtree(directory)
    assert came == {0, 1, 2, 3}


def test_after_a_power_cut_the_state_is_whole_and_what_was_waited_for(tmp_path: Path) -> None:
    """G1, G2."""
    disk, ends = FaultDisk(begun(tmp_path / "whole")), []

    class Noting(safepoint.Session):
        def wait(self) -> None:
            super().wait()
            ends.append(len(disk.record.ops))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safepoint, "Session", Noting)
        stepping(tmp_path / "whole", disk)
    disk.end()
    count = 0
    for image in images(disk.record, str(tmp_path), seed=3, singles=1, at=disk.record.changing[::5]):
        least = sum(image.ops >= end for end in ends)
        step = goes_on(Path(image.directory), FaultDisk(image.directory, boot="2", inodes=image.inodes))
        assert step >= least, image
        shutil.rmtree(image.directory)
        count += 1
    assert count > 30


def test_a_disk_that_is_full_leaves_the_state_in_memory_and_the_last_set(start: Start, work: Path) -> None:
    class Full(Disk):
        full = False

        @contextlib.contextmanager
        def create(self, path: str, *mode: int) -> Any:
            with super().create(path, *mode) as file:
                if self.full and path.endswith("state.npz.new"):
                    raise OSError(28, "No space left on device", path)
                yield file

    session = start("state.npz\n", disk=(disk := Full()))
    session.save_state(0, u=np.ones(3))
    session.wait()
    disk.full = True
    with pytest.raises(SaveError, match=r"the state of step 1 not written: \.state\.npz\.new: No space left"):
        session.save_state(1, u=np.ones(3))
    assert contents(work) == {}
    disk.full = False
    session.save_state(1, u=np.ones(3))
    assert session.sets()[0].step == 1
    session.load_state()
    disk.full = True
    with pytest.raises(SaveError):
        session.save_state(2, u=np.ones(3))
    assert (work / "state.npz").exists()  # what load_state has put there


def test_arguments_that_init_refuses_leave_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        safepoint.load_state(tmp_path, keep="bad")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".safepoint.new").write_text("")  # a start that was killed
    with pytest.raises(UsageError):
        safepoint.load_state(tmp_path, keep=0)
    assert safepoint.load_state(tmp_path) is None
    assert (tmp_path / ".safepoint").read_text() == "state.npz\n"
    safepoint.close()


# One file.


def test_a_file_that_is_written_atomically_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with safepoint.atomic(path) as file:
        file.write("é one")
        assert not path.exists()
    assert path.read_text("utf-8") == "é one"
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), safepoint.atomic(path, "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text("utf-8") == "é one"
    (tmp_path / "link").symlink_to(path)
    with safepoint.atomic(tmp_path / "link", "wb") as file:
        file.write(b"two")
        file.seek(1)
        file.write(b"W")
    assert path.read_bytes() == b"tWo" and path.stat().st_mode & 0o777 == 0o640 and (tmp_path / "link").is_symlink()
    with safepoint.atomic(path, encoding="latin-1") as file:
        file.write("é")
    assert path.read_bytes() == b"\xe9"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "result.json"]
    with pytest.raises(UsageError, match="atomic takes the mode"), safepoint.atomic(path, "a"):
        pass
    with (
        pytest.raises(SaveError, match=r"no/file not written: No such file or directory"),
        safepoint.atomic(tmp_path / "no/file"),
    ):
        pass


def test_an_error_of_the_disk_is_one_of_ours_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    for disk in (Failing(lambda _: True), NoRoom(lambda _: True)):
        with pytest.raises(SaveError, match="result not written"), one_file.replacing(disk, path, "w", None) as file:
            file.write("new")
        assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("boot", ["boot", "after"])
def test_killed_or_cut_anywhere_it_is_the_old_file_or_the_new_one(tmp_path: Path, boot: str) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/result").write_bytes(b"old")
    disk = FaultDisk(tmp_path / "w")
    with one_file.replacing(disk, tmp_path / "w/result", "wb", None) as file:
        file.write(b"new" * 9)
    returned = len(disk.record.ops)
    disk.end()
    came = set()
    if boot == "after":
        for image in images(disk.record, str(tmp_path), seed=1):
            found = (Path(image.directory) / "result").read_bytes()
            assert found == b"new" * 9 or (found == b"old" and image.ops < returned), image
            came.add(found)
    for at in disk.record.changing if boot == "boot" else ():
        directory = Path(shutil.copytree(tmp_path / "w", tmp_path / f"killed-{at}"))
        (directory / "result").write_bytes(b"old")
        with (
            contextlib.suppress(Killed),
            one_file.replacing(FaultDisk(directory, kill_at=at), directory / "result", "wb", None) as file,
        ):
            file.write(b"new" * 9)
        came.add((directory / "result").read_bytes())
    assert came == {b"old", b"new" * 9}


@pytest.mark.proof
def test_the_example_of_the_tutorial_is_killed_and_goes_on(tmp_path: Path) -> None:
    """examples/walk.py."""
    program = SOURCE / "examples/walk.py"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    whole = tmp_path / "whole"
    for directory in (whole, tmp_path / "killed"):
        directory.mkdir()
    subprocess.run([sys.executable, program, "60"], cwd=whole, env=environment, check=True)
    numbers = Root(str(tmp_path / "killed"))
    for lives in range(1, 4):
        with subprocess.Popen([sys.executable, program, "60"], cwd=tmp_path / "killed", env=environment) as job:
            wait_for(lambda lives=lives: max(numbers.numbers("set"), default=0) > 10 * lives)
            job.kill()
        assert job.returncode == -signal.SIGKILL
    subprocess.run([sys.executable, program, "60"], cwd=tmp_path / "killed", env=environment, check=True)
    assert (tmp_path / "killed/state.npz").read_bytes() == (whole / "state.npz").read_bytes()
