"""G6, checked: a set that was damaged later is detected before one byte of W is touched. An older whole set is given
back, or an error is raised.

Here the seals hold, and the contents are others, or names are no files. Every command says which file is wrong; nothing
outside is touched, nor more read than a bound.
"""

from __future__ import annotations

import copy
import json
import math
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testbed import damage
from testbed.damage import contents, edit, room_above, start
from testbed.faultdisk import FaultDisk, Killed
from testbed.sweep import LONG, many, some_of

import safepoint
from safepoint import DamagedError, FormatError, ManifestError, SafepointError
from safepoint.cli.group import program
from safepoint.disk import Disk
from safepoint.disk.codec import checksum
from safepoint.record import parse_record
from safepoint.root import Root
from safepoint.run.attempts import Attempts
from safepoint.sealed import Unsealed, seal, unseal

pytestmark = pytest.mark.leaves_damage
EXAMPLES = 10_000 if LONG else many(300)
MANIFEST = """\
u.npy
sub/v.dat
big.dat       compress
history.csv   append
run.zarr/
fields/*.vtk
keep = 3
bundle_from = 2
"""
BELOW = ".safepoint.d/rank-00000"
STEPS = 3  # set N holds step N - 1
SMALL = 256 << 20  # bytes of memory that no small file may cost
FIFTH = "@" * 5  # stands in a JSON text for what json.dumps cannot write


def files(step: int) -> dict[str, bytes]:
    return {
        "u.npy": b"u at %d\n" % step * 10_000,
        "sub/v.dat": b"v at %d\n" % step * 10_001,
        "big.dat": b"much the same, again and again, at %d\n" % step * 4000,
        "history.csv": b"".join(b"row %d\n" % k for k in range(step + 1)),
        f"fields/{step}.vtk": b"field %d" % step,
        "fields/same.vtk": b"the same at %d" % step,
        "run.zarr/meta": b"{%d}" % step * 10000,
    }


def write(work: Path, step: int) -> None:
    damage.write(work, files(step))
    if not (work / "run.zarr/link").is_symlink():
        (work / "run.zarr/link").symlink_to("meta")


class Dying(FaultDisk):
    """It has no mount that can be named, so that only checksums can prove what is left of a set."""

    dies = False

    def rename(self, source: str, target: str) -> None:
        self.dead = self.dead or (self.dies and target.endswith("/record.json"))
        super().rename(source, target)


def make(work: Path, kind: str) -> Path:
    """`sets`: three committed ones, and torn files; `uncommitted`: died when the newest of these had all but its
    record's name; `first`: the same of the only one; `finished`; `unsaved`: a run that died in its first step."""
    work.mkdir(parents=True)
    (work / ".safepoint").write_text(MANIFEST)
    if kind == "unsaved":
        (work / "u.npy").write_bytes(b"given")
    disk = Dying(work, mount=None) if kind in ("first", "uncommitted") else None
    session = safepoint.Session(work, disk=disk or Disk())
    session.restore()
    for step in range({"unsaved": 0, "first": 1}.get(kind, STEPS)):
        write(work, step)
        if disk and step == {"first": 0, "uncommitted": STEPS - 1}[kind]:
            disk.dies = True
            with pytest.raises(Killed):
                session.hide(step, wait=True)
            disk.end()
        else:
            session.hide(step, wait=True)
    if kind == "finished":
        write(work, STEPS)
        session.finish(STEPS)
        return work
    if disk is None:
        session.close()
    if kind != "unsaved":
        (work / "u.npy").write_bytes(b"u at 3\nu a")
    (work / "sub").mkdir(exist_ok=True)
    (work / "sub/v.dat").write_bytes(b"torn")
    with (work / "history.csv").open("ab") as file:
        file.write(b"row 3\nro")
    return work


KINDS = ("sets", "uncommitted", "first", "finished", "unsaved")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with room_above() as path:
        yield path


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("pristine")
    for kind in KINDS:
        make(top / kind, kind)
    return top


def copied(pristine: Path, kind: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine / kind, tmp_path / "work", symlinks=True))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(program, [str(argument) for argument in arguments], prog_name="safepoint")


# Contents that are others. A sealed file is text of JSON here: what is put into it may be none that Python would write.

ODD = (
    None, True, False, -1, 0, 1, 2, 7, 1.5, 2**31, 2**63, 10**30, math.nan, math.inf, "", "x", ".", "a\0b", "\ud800",
    "../x", "/etc/x", ".safepoint", "u.npy", "u.npy/x", "x" * 5000, "a/" * 3000 + "a", "{", "append", "tree", "zst",
    [], {}, [[]], [None], ["x"], {"x": 1}, f"{FIFTH}digits", f"{FIFTH}deep",
)  # fmt: skip
RAW = {f'"{FIFTH}digits"': "9" * 5000, f'"{FIFTH}deep"': "[" * 100_000 + "]" * 100_000}


def text_of(content: Any) -> str:
    """JSON, also of what no Python would write."""
    text = json.dumps(content)
    for short, long in RAW.items():
        text = text.replace(short, long)
    return text


def sealed(content: Any) -> bytes:
    """As `docs/format.md` says, whatever the content is."""
    body = text_of(content).encode() + b"\n"
    return b'{"xxh3_128": "%s", "content":\n' % checksum(body).encode() + body + b"}\n"


def places(content: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in a JSON content."""
    yield way
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inner:
        yield from places(value, (*way, key))


def way_at(content: Any, at: int) -> tuple[Any, ...]:
    """The way to one value, as often to a field of the whole as to one of the many in rows."""
    ways = list(places(content))
    return ways[at % len(ways)] if at % 2 else [w for w in ways if len(w) <= 1][at // 2 % len([*content, None])]


def changed(content: Any, way: tuple[Any, ...], how: str, odd: Any, at: int = 0) -> Any:
    """This one value in a copy of it replaced, left out, doubled or added."""
    if not way:
        return odd
    holder = content = copy.deepcopy(content)
    for key in way[:-1]:
        holder = holder[key]
    if how == "replaced":
        holder[way[-1]] = odd
    elif how == "left out":
        del holder[way[-1]]
    elif isinstance(holder, list):
        holder.insert(at % (len(holder) + 1), holder[way[-1]] if how == "doubled" else odd)
    else:
        holder[f"{way[-1]}{how}"] = odd
    return content


def mutate(work: Path, data: st.DataObject) -> str:
    """Change one sealed file, or all of its name; which."""
    found = sorted(work.glob(".safepoint.d/**/*.json*"))
    found = [path for path in found if path.read_bytes().startswith(b'{"xxh3_128"')]
    chosen = data.draw(st.sampled_from(found))
    how = data.draw(st.sampled_from(["replaced"] * 4 + ["left out", "doubled", "added", "another", "flipped", "cut"]))
    at, odd = data.draw(st.integers(0, 10_000)), data.draw(st.sampled_from(ODD))
    for path in [p for p in found if p.name == chosen.name] if data.draw(st.booleans()) else [chosen]:
        old = path.read_bytes()
        if how == "another":
            path.write_bytes(found[at % len(found)].read_bytes())
        elif how == "flipped":
            path.write_bytes(old[: at % len(old)] + bytes([old[at % len(old)] ^ 1]) + old[at % len(old) + 1 :])
        elif how == "cut":
            path.write_bytes(old[: at % len(old)])
        else:
            content = json.loads(old)["content"]
            path.write_bytes(sealed(changed(content, way_at(content, at), how, odd, at)))
    return f"{chosen.relative_to(work)} {how} {at} {str(odd)[:40]!r}"


def judged(kind: str, work: Path, before: dict[str, bytes | None]) -> str:
    """What is wrong with how a program starts here; nothing if all is as promised."""
    begin, now = start(work), contents(work)
    if begin.error is not None:
        if not isinstance(begin.error, SafepointError):
            return f"raised {begin.error!r}"
        if kind == "first":  # what it had moved may be back
            now = {name: now.get(name) for name in before}
        return "" if now == before else f"raised ({begin.text}) and changed the working directory"
    if kind == "finished":
        return "" if now == before else "changed the result"
    if kind == "unsaved":
        kept = [work / "u.npy", *work.glob(".safepoint.d/rank-00000/discarded/u.npy*")]
        return (
            "" if begin.point is None and any(p.read_bytes() == b"given" for p in kept if p.is_file()) else f"{begin}"
        )
    if begin.point is None:  # the initial state: no file existed
        return "" if kind == "first" else "took it for a first start"
    theirs = files(begin.point.number - 1)
    torn = [n for n in begin.point.files if n in now and now[n] != theirs.get(n) and not (work / n).is_symlink()]
    torn = [name for name in torn if name in theirs or now[name] not in theirs.values()]  # else the record renamed it
    lacks = [name for name in begin.point.files if name not in now]
    return f"mixed: {torn}, {lacks} of {begin.point}" if torn or lacks else ""


def memory() -> int:
    """Bytes that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


hostile = settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(4 * 3600 if LONG else 600)
@pytest.mark.parametrize("kind", ["sets", "uncommitted"])
@hostile
@given(data=st.data())
def test_any_content_under_a_good_seal_gives_back_a_whole_set_or_an_error(
    pristine: Path, kind: str, data: st.DataObject
) -> None:
    """G6: records and lists as nobody writes them. W is whole, or untouched, and only errors of safepoint leave."""
    _starts(pristine, kind, data)


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.parametrize("kind", ["first", "finished", "unsaved"])
@settings(hostile, max_examples=max(10, EXAMPLES // 5))
@given(data=st.data())
def test_any_content_of_a_mark_or_a_baseline_leaves_the_files_as_they_are_or_whole(
    pristine: Path, kind: str, data: st.DataObject
) -> None:
    """G3, G4, G6: the same of the finish mark, the baseline, and a first set that was not committed."""
    _starts(pristine, kind, data)


def _starts(pristine: Path, kind: str, data: st.DataObject) -> None:
    with room_above() as top:
        work = copied(pristine, kind, top)
        what, before, outside = mutate(work, data), contents(work), sorted(os.listdir(top))
        most = memory()
        wrong = judged(kind, work, before)
        assert not wrong, f"{what}: {wrong}"
        assert memory() - most < SMALL, what
        assert sorted(os.listdir(top)) == outside


COMMANDS = (
    ("status",), ("status", "--json"), ("show", 3), ("show", 2, "--json"), ("verify",), ("why",), ("why", "--json"),
    ("diff", 2, 3), ("diff", 3, "now"), ("restore", "--yes"), ("restore", "--set", 2, "--yes"),
    ("restore", "--to", "TO"), ("drop", 3, "--yes"), ("drop", 2, "--force", "--yes"), ("clean", "--yes"),
    ("clean", "--dry-run", "--json"), ("log",), ("log", "--json"), ("report", "-o", "-"), ("report", "--json"),
    ("halt", "--undo"), ("finish",), ("hide",),
)  # fmt: skip


def told(result: Result) -> str:
    """What is wrong with how a command ended: only its own exits are right."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"raised {result.exception!r}"
    return "" if result.exit_code in (0, 1, *range(10, 21)) else f"ended with {result.exit_code}: {result.output}"


@pytest.mark.timeout(4 * 3600 if LONG else 600)
@hostile
@given(data=st.data())
def test_any_content_under_a_good_seal_lets_each_command_end_in_words(pristine: Path, data: st.DataObject) -> None:
    """G6: no command ends in a traceback, and what is in place is whole afterwards, or untouched."""
    kind, command = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(COMMANDS))
    with room_above() as top:
        work = copied(pristine, kind, top)
        what = f"{mutate(work, data)}, {command}"
        words = [f"{top}/{word}" if word == "TO" else word for word in command]
        most = memory()
        wrong = told(run(*words[: 2 if words[0] in ("show", "drop") else 3 if words[0] == "diff" else 1], work, *words[
            2 if words[0] in ("show", "drop") else 3 if words[0] == "diff" else 1 :]))  # fmt: skip
        assert not wrong, f"{what}: {wrong}"
        assert memory() - most < SMALL, what


@pytest.mark.parametrize("odd", some_of(ODD, 6), ids=lambda odd: repr(odd)[:20])
def test_a_line_of_the_log_with_any_value_in_it_is_shown_or_left_out(pristine: Path, tmp_path: Path, odd: Any) -> None:
    """The log carries no promise: a line that is not what was written counts as torn, and only that line."""
    work = copied(pristine, "sets", tmp_path)
    log = work / BELOW / "log.jsonl"
    value = {"time": 1.0, "event": "watch", "pid": 1, "step": 1, "at": "a:1", "values": {"u": ["f8", [3], "00", 1.0]}}
    before = [*log.read_text().splitlines(), json.dumps(value)]
    lines = []
    for line in before:
        content = json.loads(line)
        lines += [text_of(changed(content, way, "replaced", odd)) for way in places(content)]
        lines += [text_of({**content, key: [odd]}) for key in ("passed_over", "aside", "blocked", "sums")]
        for key in ("due", "passed_over", "aside", "taken", "finished", "why", "error", "blocked", "sums", "values"):
            lines.append(text_of({**content, key: odd}))
    log.write_text("\n".join([*before, *lines, *before]) + "\n")
    for command in (*[c for c in COMMANDS if c[0] in ("log", "report", "status")], ("compare", work)):
        result = run(command[0], work, *command[1:])
        assert not told(result) or "nothing to compare" in result.output, (command, told(result))
    shown = json.loads(run("log", "--json", work).stdout)["events"]
    assert [line["event"] for line in shown].count("saved") >= 2 * STEPS


NOTES: dict[str, dict[str, Any]] = {
    "owner.json": {"host": "h", "pid": 1, "since": 1.0, "command": "c"},
    "attempts.json": {"set": 3, "times": 1},
    "lost.json": {"u.npy": [1, 2]},
    "../halt.json": {"time": 1.0, "runs": [["h", 1, 1.0]], "until": None, "steps": 1},
}


@pytest.mark.parametrize("name", NOTES)
def test_notes_with_any_value_in_them_do_not_end_a_program_or_a_command(
    pristine: Path, tmp_path: Path, name: str
) -> None:
    """They are not sealed: any content at all."""
    good, work = NOTES[name], copied(pristine, "sets", tmp_path)
    ways = list(places(good))
    changes = [(way, how, "") for way in ways for how in ("left out", "doubled", "added")]
    changes += [(way, "replaced", odd) for way in ways for odd in some_of(ODD, 12)]
    for way, how, odd in changes:
        text = text_of(changed(good, way, how, odd))
        (work / BELOW / name).write_text(text)
        if name == "attempts.json":
            assert type(Attempts(Root(str(work))).set) is int, text[:200]
            continue
        wrong = told(run("hide" if name == "lost.json" else "status", work))
        assert not wrong, f"{text[:200]}: {wrong}"
        if name == "lost.json":
            shutil.rmtree(work)
            copied(pristine, "sets", tmp_path)


def test_another_kind_of_sealed_file_in_place_of_a_record_makes_restore_fall_back(
    pristine: Path, tmp_path: Path
) -> None:
    """G6: `cp taken.json record.json`: the seal holds, and what it seals is no record."""
    for source, target in (("taken.json", "record.json"), ("record.json", "taken.json")):
        work = copied(pristine, "sets", tmp_path)
        newest = work / ".safepoint.d/rank-00000/set-00000003"
        shutil.copy(newest / source, newest / target)
        begin = start(work)
        assert begin.point and begin.point.step == (1 if target == "record.json" else 2), begin
        if target == "record.json":
            assert any("record.json" in text for text in begin.warnings), begin
        shutil.rmtree(work)


def lie(path: Path, field: str, value: Any, of: str = "sub/v.dat") -> None:
    """Let a sealed file say something else, of the whole or of one file."""

    def change(content: dict[str, Any]) -> None:
        if field in content:
            content[field] = value
        else:
            row = next(row for row in content["files"] if row[0] == of)
            row[content["columns"].index(field)] = value

    edit(path, change)


ABSURD = [
    ("number", 2**63), ("step", 1.5), ("time", math.nan), ("time", 1e300), ("committed", -math.inf), ("rank", -1),
    ("ranks", 0), ("ranks", 2**62), ("saver", -1), ("saver", True), ("patterns", [1]), ("patterns", ["{"]),
    ("host", "\0"), ("version", "\ud800"), ("columns", {}), ("files", None), ("path", "a\0b"), ("path", "u.npy"),
    ("path", "u.npy/x"), ("path", ""), ("path", "."), ("path", "a/" * 3000 + "a"), ("kind", "fifo"), ("kind", "link"),
    ("size", -1), ("size", 2**63), ("checksum", None), ("mode", -1), ("mode", 2**31), ("mtime_ns", 10**30),
    ("kept", ""), ("stored_size", -1), ("offset", 2**63), ("target", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), ABSURD, ids=lambda what: repr(what)[:20])
def test_a_record_with_an_absurd_value_makes_restore_fall_back(
    pristine: Path, tmp_path: Path, field: str, value: Any
) -> None:
    """G6: it is named, and what it says is never tried."""
    work = copied(pristine, "sets", tmp_path)
    lie(work / BELOW / "set-00000003/record.json", field, value)
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin
    assert any("record.json: " in text for text in begin.warnings), begin


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + "/y", "sub/" + "x" * 300])
def test_a_record_with_a_name_longer_than_any_file_system_has_makes_restore_fall_back(
    pristine: Path, tmp_path: Path, name: str
) -> None:
    """G6: ENAMETOOLONG says that the file is missing, as ENOENT does; it is no reason to end."""
    work = copied(pristine, "sets", tmp_path)
    lie(work / BELOW / "set-00000003/record.json", "path", name)
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin
    assert any(f"set 3: {name} is missing" in text for text in begin.warnings), begin


def test_a_list_that_its_record_contradicts_completes_nothing(pristine: Path, tmp_path: Path) -> None:
    """G6: else the set would be committed with what the list says, and the table in place be cut to that."""
    work = copied(pristine, "uncommitted", tmp_path)
    assert start(copied(pristine, "uncommitted", tmp_path / "plain")).point.step == 2  # type: ignore[union-attr]
    lie(work / BELOW / "set-00000003/taken.json", "size", 0, of="history.csv")
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin
    assert (work / "history.csv").read_bytes() == files(1)["history.csv"]


def test_a_link_outside_of_every_listed_directory_is_no_part_of_a_set(pristine: Path, tmp_path: Path) -> None:
    """G1: only a directory that moves as a whole brings its links; such a set would lack one in silence."""
    work = copied(pristine, "sets", tmp_path)

    def without(content: dict[str, Any]) -> None:
        content["files"] = [row for row in content["files"] if row[0] != "run.zarr"]

    edit(work / BELOW / "set-00000003/record.json", without)
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin


def test_links_of_a_record_that_lead_out_together_make_restore_fall_back(pristine: Path, tmp_path: Path) -> None:
    """G6: by its text each leads into its directory."""
    work = copied(pristine, "sets", tmp_path)

    def with_two(content: dict[str, Any]) -> None:
        row = next(row for row in content["files"] if row[0] == "run.zarr/link")
        at = content["columns"].index("target")
        content["files"].append([*["run.zarr/up", *row[1:]][:at], ".", *row[at + 1 :]])
        row[at] = "up/../../u.npy"

    edit(work / BELOW / "set-00000003/record.json", with_two)
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin
    assert any("it names run.zarr/link as a link that leads out" in text for text in begin.warnings), begin


def test_the_list_of_another_set_completes_nothing(pristine: Path, tmp_path: Path) -> None:
    """G6: `cp set-2/taken.json set-3`: the files of set 2 would be moved and committed as those of set 3."""
    work = copied(pristine, "uncommitted", tmp_path)
    root = work / ".safepoint.d/rank-00000"
    (root / "set-00000003/record.json.new").unlink()
    shutil.copy(root / "set-00000002/taken.json", root / "set-00000003/taken.json")
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin
    assert any("taken.json is that of set 2" in text for text in begin.warnings), begin


# What a newer version adds.


def with_more(content: dict[str, Any]) -> None:
    """Keys and columns that nobody knows yet, between those that are known."""
    content["later"] = {"of": ["the", "future"]}
    if isinstance(content.get("columns"), list):
        content["columns"].insert(2, "hue")
        for row in content["files"]:
            row.insert(2, {"red": 1})
    for row in content["files"]:
        if isinstance(row, dict):
            row["hue"] = 2


@pytest.mark.parametrize("kind", KINDS)
def test_keys_and_columns_that_are_not_known_are_ignored(pristine: Path, tmp_path: Path, kind: str) -> None:
    """docs/format.md: what an older version may ignore is added without a new number of the format."""
    plain, more = (copied(pristine, kind, tmp_path / name) for name in ("plain", "more"))
    for path in more.glob(".safepoint.d/**/*.json*"):
        if path.read_bytes().startswith(b'{"xxh3_128"'):
            edit(path, with_more)
    one, other = start(plain), start(more)
    assert (one.error, other.error) == (None, None)
    assert (one.point, contents(plain)) == (other.point, contents(more))


# Names that are no files.


def hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        pytest.skip("needs the right to make a device")


def outside(path: Path) -> Path:
    """Beside W, where nothing may be touched."""
    return next(p for p in path.parents if p.name == "above") / "outside"


def to_a_file(path: Path) -> None:
    (outside(path) / "file").write_bytes(b"not for here")
    path.symlink_to(outside(path) / "file")


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a hole of 1 TB": hole, "a fifo": os.mkfifo, "a socket": bound, "a device": device, "a directory": Path.mkdir,
    "a link": to_a_file, "a link to itself": lambda path: path.symlink_to(path.name),
}  # fmt: skip
START = """
import resource, sys
import safepoint
from click.testing import CliRunner
from safepoint.cli.group import program
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for work in sys.argv[1:]:
    for command in (["status"], ["why"], ["verify"], ["log"], ["report", "-o", "-"], ["compare", work]):
        done = CliRunner().invoke(program, [*command, work], prog_name="safepoint")
        wrong = done.exception is not None and not isinstance(done.exception, SystemExit)
        assert not wrong and done.exit_code in (0, 1, 2, *range(10, 21)), (work, command, done, done.output)
    try:
        session = safepoint.init(work)
        point = session.restore()
        print(point and point.step, flush=True)
        session.close()
    except safepoint.SafepointError as error:
        print(type(error).__name__, repr(str(error)), flush=True)
"""

OUTCOMES = {
    f"{BELOW}/set-00000003/record.json": "1",
    f"{BELOW}/set-00000003/taken.json": "2",
    f"{BELOW}/set-00000003/files/u.npy": "1",
    f"{BELOW}/set-00000003/packed/big.dat.zst": "1",
    f"{BELOW}/set-00000003/bundle.tar": "1",
    **{f"{BELOW}/{name}": "2" for name in (
        "log.jsonl", "attempts.json", "lost.json", "owner.json", "stage", "discarded", "set-00000004", "gone-00000001",
        "baseline.json",
    )},
    ".safepoint.d/halt.json": "2",
    ".safepoint.d/FORMAT": "FormatError",
    ".safepoint.d/finished.json": "DamagedError",
    ".safepoint": "ManifestError",
    ".safepoint.d": "FormatError",
    BELOW: "FormatError",
}  # fmt: skip
OF_DIRECTORIES = {  # where a directory is what should be there, or is met by who writes
    BELOW: "None", ".safepoint.d": "None", f"{BELOW}/owner.json": "SaveError", f"{BELOW}/lost.json": "RestoreError",
}  # fmt: skip


@pytest.mark.parametrize("what", ODD_FILES)
def test_what_is_no_file_or_too_large_is_neither_read_nor_waited_for(pristine: Path, tmp_path: Path, what: str) -> None:
    """G6: the set is damaged, or the error names the file; nothing outside is touched, in 2 GB of memory. (A link to
    a manifest is followed, and this one lists nothing.)"""
    names = some_of(list(OUTCOMES), 6)
    tops = [tmp_path / name.replace("/", "_") for name in names]
    (tmp_path / "outside").mkdir()
    for top, name in zip(tops, names, strict=True):
        path = copied(pristine, "sets", top) / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        ODD_FILES[what](path)
    before = contents(tmp_path / "outside")
    command = [sys.executable, "-c", START, *(str(top / "work") for top in tops)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    said = done.stdout.splitlines()
    assert done.returncode == 0, f"{names[len(said) :]}: {done.stderr}"
    for name, text in zip(names, said, strict=True):
        outcome = (OF_DIRECTORIES if what == "a directory" else {}).get(name, OUTCOMES[name])
        assert text.split()[0] == outcome, (name, text)
        assert not outcome.endswith("Error") or os.path.basename(name) in text, (name, text)
    assert contents(tmp_path / "outside") == before


DIRECTORIES = (
    ".safepoint.d", BELOW,
    *(f"{BELOW}/set-{n:08d}{inner}" for n in (1, 2, 3) for inner in ("", "/files", "/files/sub", "/packed")),
    f"{BELOW}/set-00000003/files/run.zarr", f"{BELOW}/set-00000004", f"{BELOW}/set-00000004/files", f"{BELOW}/stage",
    f"{BELOW}/discarded", f"{BELOW}/gone-00000001", f"{BELOW}/failed-00000001", f"{BELOW}/failed-00000001/files",
)  # fmt: skip


def lived(work: Path) -> BaseException | None:
    """A life that restores, saves often enough to prune all that was there, and finishes."""
    try:
        session = safepoint.init(work)
        try:
            session.restore()
            for step in range(10, 15):
                write(work, step)
                session.hide(step, wait=True)
            write(work, 20)
            session.finish(20)
        finally:
            session.close()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("kind", ["sets", "uncommitted", "first"])
def test_a_directory_that_became_a_link_is_not_followed_by_a_life(pristine: Path, tmp_path: Path, kind: str) -> None:
    """docs/format.md, links and sizes: no path outside W is ever read as ours, moved or deleted."""
    for name in some_of(DIRECTORIES, 10):
        work, before = with_a_link(pristine, kind, tmp_path / name / "above", name)
        whole = contents(work)
        error = lived(work)
        assert contents(outside(work)) == before, name
        assert error is None or isinstance(error, SafepointError), (name, error)
        if error is not None:
            assert os.path.basename(name) in str(error) and contents(work) == whole, (name, error)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] in ("restore", "drop", "clean", "finish")], ids=str)
def test_a_directory_that_became_a_link_is_not_followed_by_a_command(
    pristine: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The same by hand."""
    for name in some_of(DIRECTORIES, 10):
        work, before = with_a_link(pristine, "sets", tmp_path / name / "above", name)
        words = [tmp_path / name / "to" if word == "TO" else word for word in command]
        first = 2 if words[0] == "drop" else 1
        result = run(*words[:first], work, *words[first:])
        assert result.exit_code == FormatError.code or name not in (".safepoint.d", BELOW), result.output
        assert contents(outside(work)) == before, name
        assert not told(result), (name, told(result))


def with_a_link(pristine: Path, kind: str, top: Path, name: str) -> tuple[Path, dict[str, bytes | None]]:
    """A directory of a run in which this one was moved out and linked to, as if to save room; what is outside then."""
    work = copied(pristine, kind, top)
    path, away = work / name, outside(work)
    away.mkdir()
    for inner in ("", "sub", "files", "files/sub", "discarded"):
        (path / inner).mkdir(parents=True, exist_ok=True)
        if not (path / inner / "v.dat").exists():
            (path / inner / "v.dat").write_bytes(b"of somebody else")
    path.rename(away / "moved")
    path.symlink_to(away / "moved")
    return work, contents(away)


@pytest.mark.parametrize("name", ["log.jsonl", "lock", "owner.json", "set-00000004/taken.json"])
def test_a_file_that_became_a_link_is_not_written_through(pristine: Path, tmp_path: Path, name: str) -> None:
    """docs/format.md, links and sizes: nothing is added to what it points to, nor is that cut."""
    work = copied(pristine, "sets", tmp_path)
    (tmp_path / "outside").mkdir()
    path = work / BELOW / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    to_a_file(path)
    error = lived(work)
    assert error is None or isinstance(error, SafepointError), error
    assert (tmp_path / "outside/file").read_bytes() == b"not for here"


@pytest.mark.parametrize("name", ["discarded", "discarded/fields"])
def test_strays_are_not_moved_through_a_link_in_discarded(pristine: Path, tmp_path: Path, name: str) -> None:
    """docs/protocol.md, restore: what a killed one has set aside stays there, and may hold a link."""
    work = copied(pristine, "sets", tmp_path)
    (tmp_path / "outside").mkdir()
    (work / BELOW / "stage").mkdir()  # it was killed
    (work / BELOW / name).parent.mkdir(exist_ok=True)
    (work / BELOW / name).symlink_to(tmp_path / "outside")
    (work / "fields").mkdir(exist_ok=True)
    (work / "fields/stray.vtk").write_bytes(b"of the lost iteration")
    begin = start(work)
    assert os.listdir(tmp_path / "outside") == []
    assert begin.error is None or isinstance(begin.error, SafepointError), begin


# What is unpacked.


@pytest.fixture
def bomb(pristine: Path, tmp_path: Path) -> Path:
    """A frame of some kB that would become 256 MB, in the newest set, whose record knows its size as stored."""
    work = copied(pristine, "sets", tmp_path)
    frame = zstandard.ZstdCompressor().compress(bytes(SMALL))
    newest = work / BELOW / "set-00000003"
    (newest / "packed/big.dat.zst").write_bytes(frame)
    lie(newest / "record.json", "stored_size", len(frame), of="big.dat")
    return work


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may have more than 16 MB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_frame_that_holds_more_than_its_record_says_is_damage(bomb: Path, small_files: None) -> None:
    """G6: it is unpacked up to the size in the record, and the set before is given back."""
    begin = start(bomb)
    assert begin.point and begin.point.step == 1, begin
    assert any(f"big.dat has more than {len(files(2)['big.dat'])} bytes" in text for text in begin.warnings), begin


def test_commands_unpack_no_more_than_the_record_says(bomb: Path, tmp_path: Path, small_files: None) -> None:
    """verify, diff and restore --to: damaged, and no file larger than it may be is made anywhere."""
    done = run("verify", bomb)
    assert done.exit_code == DamagedError.code and "big.dat has more than" in done.output, done.output
    done = run("diff", 2, 3, bomb)
    assert done.exit_code == 1 and "damaged" in done.output and "big.dat has more than" in done.output, done.output
    done = run("restore", bomb, "--set", 3, "--to", tmp_path / "to")
    assert done.exit_code == DamagedError.code and "big.dat has more than" in done.output, done.output


def bytes_read() -> int:
    """By this process, in all system calls so far."""
    return int(Path("/proc/self/io").read_text().split()[1]) if os.path.exists("/proc/self/io") else 0


def test_a_file_that_is_larger_than_its_record_says_is_not_read(pristine: Path, tmp_path: Path) -> None:
    """G6: 1 TB of nothing, whose size the record knows as stored: it is not copied, nor compared to its end."""
    work = copied(pristine, "sets", tmp_path)
    newest = work / BELOW / "set-00000003"
    hole(newest / "files/u.npy")
    lie(newest / "record.json", "stored_size", 1 << 40, of="u.npy")
    before = bytes_read()
    for command in (["verify"], ["diff", 2, 3]):
        done = run(*command, work)
        assert "u.npy has 1099511627776 bytes instead of" in done.output, done.output
    begin = start(work)
    assert begin.point and begin.point.step == 1, begin
    assert bytes_read() - before < SMALL


def test_errors_that_name_the_manifest_and_the_format_say_what_is_there(pristine: Path, tmp_path: Path) -> None:
    """G7: not only that it cannot be read."""
    work = copied(pristine, "sets", tmp_path)
    for name, kind in ((".safepoint", ManifestError), (".safepoint.d/FORMAT", FormatError)):
        text = (work / name).read_bytes()
        hole(work / name)
        begin = start(work)
        assert isinstance(begin.error, kind) and "1099511627776 bytes" in begin.text, begin
        (work / name).write_bytes(text)


@pytest.mark.parametrize(
    "parents", [{"a": 7}, {"a": [0o700]}, {"a": [0o700, "x"]}, {"a": [1 << 70, 0]}, {"a": [True, 0]}]
)
def test_directories_that_are_none_are_damage(parents: dict[str, Any], pristine: Path) -> None:
    content = unseal((next(pristine.rglob("set-*/record.json"))).read_bytes())
    with pytest.raises(Unsealed, match="its directories are none"):
        parse_record(seal({**content, "parents": parents}))
