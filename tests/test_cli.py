"""The command line: what each command says, what it leaves alone, and with which code it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
from click.testing import CliRunner, Result
from lives import killed_beside_a_child
from test_session import ordinary_user

import safepoint
from safepoint import errors
from safepoint.cli import contents, document
from safepoint.cli.group import COMMANDS, program
from safepoint.cli.overview import look
from safepoint.disk import Disk, SyncFailed
from safepoint.manifest import load
from safepoint.record import FORMAT, Life, Root, dump, parse_record, parse_taken, seal, unseal
from safepoint.restore import Damaged, extract

HOUSE = Path(__file__).parents[1]
MANIFEST = "u.npy\nbig.dat compress\nhistory.csv append\nrun.zarr/\nfields/*.vtk\nkeep = 3\n"
damages = pytest.mark.leaves_damage


def cli(*arguments: object) -> Result:
    """A command in this process; a traceback is an error of the test."""
    result = CliRunner().invoke(program, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command says with --json."""
    result = cli(*arguments, "--json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "safepoint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def ask(reply: str, *arguments: object) -> tuple[int, str]:
    """A command in a terminal, where somebody replies."""
    mine, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "safepoint", *map(str, arguments)], stdin=its, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as running:  # fmt: skip
        os.close(its)
        os.write(mine, f"{reply}\n".encode())
        output = running.communicate(timeout=60)[0]
    os.close(mine)
    return running.returncode, output


def write(work: Path, step: int) -> None:
    numpy.save(work / "u.npy", numpy.arange(12.0).reshape(3, 4) + step * 0.5)
    (work / "big.dat").write_text(f"the same at {step}\n" * 500)
    with (work / "history.csv").open("a") as file:
        file.write(f"{step}, {step * 0.25}\n")
    for name in ("run.zarr", "fields"):
        (work / name).mkdir(exist_ok=True)
    (work / "run.zarr/0.0").write_bytes(bytes([step]) * 64)
    (work / f"fields/{step}.vtk").write_text(f"field {step}")


def make(work: Path, *, sets: int = 3, torn: bool = True, finish: bool = False) -> Path:
    """Sets 1, 2, 3 hold the steps 0, 10, 20; then, if `torn`, the program died while it wrote its next files."""
    work.mkdir(exist_ok=True)
    (work / ".safepoint").write_text(MANIFEST)
    with_session = safepoint.Session(work)
    with_session.restore()
    for n in range(sets):
        write(work, n * 10)
        with_session.hide(n * 10, wait=True)
    if finish:
        write(work, 99)
        with_session.finish(99)
        return work
    with_session.close()
    if torn:
        (work / "u.npy").write_bytes(b"torn")
        (work / "fields/30.vtk").write_text("fie")
        with (work / "history.csv").open("a") as file:
            file.write("30, 7")
    return work


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pipe; some environments say how wide a terminal would be."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("pristine") / "work")


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "work"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks; set 3 is lacking on rank 2, whose node went down."""
    top = tmp_path_factory.mktemp("four") / "work"
    top.mkdir()
    document.example(str(top))
    return top


@pytest.fixture
def ranked(four: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(four, tmp_path / "ranked"))


def snapshot(directory: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, every directory with None."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def in_place(work: Path) -> dict[str, bytes | None]:
    return {name: data for name, data in snapshot(work).items() if not name.startswith(".safepoint")}


def hurt(work: Path, number: int, name: str = "files/u.npy", rank: int = 0) -> None:
    """Flip a bit in the middle of a file of a set; its size and time stay."""
    path = Path(Root(str(work), rank).set(number), name)
    data, info = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def unrecorded(work: Path, number: int, boot: str = "another", rank: int = 0) -> None:
    """As if the process had died before the commit, and, with another boot, the machine with it."""
    root = Root(str(work), rank)
    taken = Path(root.taken(number))
    taken.write_bytes(dump(parse_taken(taken.read_bytes())._replace(boot=boot)))
    os.unlink(root.record(number))


@contextmanager
def a_run(work: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is at work there until the block ends."""
    code = "import sys, safepoint; safepoint.init(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout and running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.kill()


# The tool itself.


def test_the_short_help_of_a_command_is_the_first_sentence_of_its_long_one() -> None:
    for name, text in COMMANDS.items():
        if name not in document.ELSEWHERE:
            assert cli(name, "--help").output.split("\n")[2].strip() == text


def test_the_list_of_commands_loads_none_of_them_and_no_table() -> None:
    code = (
        "import sys\nfrom safepoint.cli.group import program\n"
        "program(['--help'], standalone_mode=False)\n"
        "print(*[m for m in sys.modules if m.startswith(('safepoint.cli.', 'rich', 'numpy', 'psutil'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "safepoint.cli.group"
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS if name not in document.ELSEWHERE)
    assert "_SAFEPOINT_COMPLETE=fish_source" in done.stdout


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_its_packages_the_tool_says_in_one_line_what_to_install(package: str, work: Path) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = ['status', {str(work)!r}]\n"
    code += "from safepoint.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("the command line needs click and rich") and done.stderr.count("\n") == 1
    assert "pip install '.[cli]' in the directory of safepoint's source" in done.stderr


def test_it_says_its_version_and_completes_its_commands() -> None:
    assert process("--version").stdout == f"safepoint {safepoint.__version__}\n"
    asked = {**os.environ, "_SAFEPOINT_COMPLETE": "bash_complete", "COMP_WORDS": "safepoint st", "COMP_CWORD": "1"}
    assert process(env=asked).stdout == "plain,status\n"


def test_wrong_options_are_a_usage_error_and_not_one_of_ours() -> None:
    assert [cli("status", "--colour").exit_code, cli("show").exit_code, cli("nothing").exit_code] == [2, 2, 2]


def test_a_reader_that_has_seen_enough_is_no_error(work: Path) -> None:
    command = f"{sys.executable} -m safepoint show 3 {work} | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("s", "")


def test_an_interrupt_ends_it_with_130_and_no_traceback(work: Path) -> None:
    code = "import os, signal, sys\nfrom safepoint.cli import overview, main\n"
    code += "overview.finish_mark = lambda *a: os.kill(os.getpid(), signal.SIGINT)\n"
    code += f"sys.argv[1:] = ['status', {str(work)!r}]; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_every_exit_code_is_in_the_table_of_the_documentation() -> None:
    codes = document.codes()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.SafepointError]
    assert {kind.__name__: kind.code for kind in kinds} == {name: code for code, (name, _) in codes.items() if name}
    text = (HOUSE / "docs/cli.md").read_text("utf-8")
    assert re.findall(r"^\| (\d+) \| `?(\w*)`? \|", text, re.M) == [(str(c), name) for c, (name, _) in codes.items()]


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert (HOUSE / "docs/cli.md").read_text("utf-8") == document.page(), "run python -m safepoint.cli.document"


def test_the_json_keys_of_every_command_are_those_of_the_documentation(work: Path, tmp_path: Path) -> None:
    finished = make(tmp_path / "finished", finish=True)
    scripted = tmp_path / "scripted"
    scripted.mkdir()
    (scripted / ".safepoint").write_text("u.npy\n")
    (scripted / "u.npy").write_bytes(b"1")
    said = {
        "status": answer("status", work),
        "verify": answer("verify", work),
        "show": answer("show", 3, work),
        "why": answer("why", work),
        "diff": answer("diff", 2, 3, work, code=1),
        "log": answer("log", work),
        "restore": answer("restore", work),
        "drop": answer("drop", 1, work, "--yes"),
        "clean": answer("clean", work, "--yes"),
        "hide": answer("hide", scripted, "--step", 1),
        "finish": answer("finish", scripted),
        "init": answer("init", work, "--print"),
    }
    with contextlib.closing(safepoint.Session(scripted)):
        said["halt"] = answer("halt", scripted)
    assert {name: set(keys) for name, keys in said.items()} == {name: set(k) for name, k in document.KEYS.items()}
    assert set(answer("status", finished)) == set(document.KEYS["status"])
    assert set(answer("restore", finished)) == set(document.KEYS["restore"])


# status.


def test_status_lists_the_sets_and_says_what_a_restart_takes(work: Path) -> None:
    said = answer("status", work)
    assert [(s["number"], s["step"], s["state"], s["files"]) for s in said["sets"]] == [
        (3, 20, "complete", 5), (2, 10, "complete", 5), (1, 0, "complete", 5),
    ]  # fmt: skip
    assert (said["restart"]["set"], said["running"], said["finished"], said["error"]) == (3, False, None, None)
    assert "takes set 3 (step 20)" in cli("status", work).stdout


@pytest.mark.parametrize("columns", [80, 140])
def test_status_fits_the_terminal(ranked: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli("status", ranked).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    rows = [line for line in lines if re.match(r"  \d ", line)]
    assert len(rows) == 3 and all(re.search(r"[34]/4  (complete|incomplete)$", row) for row in rows)
    assert any("stored" in line for line in lines) == (columns == 140)


def test_status_changes_nothing_and_takes_no_lock(work: Path) -> None:
    before = snapshot(work)
    with a_run(work) as running:
        owner = (work / ".safepoint.d/rank-00000/owner.json").read_bytes()
        said = answer("status", work)
        assert (said["running"], said["owner"]["pid"]) == (True, running.pid)
        assert f"running: process {running.pid}" in cli("status", work).stdout
    after = snapshot(work)
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {".safepoint.d/rank-00000/owner.json", ".safepoint.d/rank-00000/log.jsonl"}
    assert after[".safepoint.d/rank-00000/owner.json"] == owner
    assert answer("status", work)["running"] is False


def test_a_run_on_another_host_is_said_to_be_out_of_sight(work: Path) -> None:
    path = work / ".safepoint.d/rank-00000/owner.json"
    with a_run(work):
        there = json.loads(path.read_text())
    path.write_text(json.dumps({**there, "host": "elsewhere"}))
    said = cli("status", work)
    assert "last started by process" in said.stdout and "cannot see from here" in said.stdout
    assert answer("status", work)["running"] is None


def test_status_of_a_copy_without_a_manifest_shows_the_sets_and_ends_with_11(work: Path) -> None:
    (work / ".safepoint").unlink()
    result = cli("status", work)
    assert result.exit_code == 11 and "no manifest" in result.stderr
    assert result.stdout.count("complete") == 3


def test_where_nothing_is_kept_status_and_why_fail_on_stderr_alone(tmp_path: Path) -> None:
    """docs/cli.md: where a command fails, stdout is empty; with --json the object has the error."""
    for command in ("status", "why"):
        result = cli(command, tmp_path)
        assert (result.exit_code, result.stdout) == (11, "") and result.stderr.startswith("safepoint: no manifest ")
        assert answer(command, tmp_path, code=11)["error"]["code"] == 11
    (tmp_path / ".safepoint").write_text("u.npy\n")
    for begin in (lambda: None, lambda: safepoint.Session(tmp_path).close()):
        begin()
        result = cli("status", tmp_path)
        assert (result.exit_code, result.stdout) == (20, "") and "nothing is saved here" in result.stderr
        assert answer("status", tmp_path, code=20)["error"]["code"] == 20
        result = cli("why", tmp_path)
        assert (result.exit_code, result.stderr) == (0, "") and "There is no set" in result.stdout
    with a_run(tmp_path) as running:
        result = cli("status", tmp_path)
        assert result.exit_code == 20 and f"running: process {running.pid}" in result.stdout


def test_what_a_copy_without_a_manifest_keeps_is_shown_and_foretold(work: Path) -> None:
    (work / ".safepoint").unlink()
    result = cli("why", work)
    assert result.exit_code == 11 and result.stderr.startswith("safepoint: no manifest ")
    assert "With one:\nRestore gives back set 3 (step 20)" in result.stdout


def test_status_of_a_finished_run_says_so(tmp_path: Path) -> None:
    work = make(tmp_path / "work", finish=True)
    said = answer("status", work)
    assert (said["finished"]["step"], said["restart"]["set"], said["error"]) == (99, None, None)
    assert "leaves the files in place alone" in cli("status", work).stdout


@damages
def test_status_names_what_is_damaged_and_takes_the_older_set(work: Path) -> None:
    (work / ".safepoint.d/rank-00000/set-00000003/files/u.npy").unlink()
    said = answer("status", work)
    assert [s["state"] for s in said["sets"]] == ["damaged", "complete", "complete"]
    assert said["sets"][0]["reasons"] == {"0": "u.npy is missing"} and said["restart"]["set"] == 2


@damages
def test_when_no_set_is_whole_status_ends_with_18(work: Path) -> None:
    for number in (1, 2, 3):
        Path(Root(str(work)).record(number)).write_bytes(b"{}")
    result = cli("status", work)
    assert result.exit_code == 18 and result.stdout.count("damaged") >= 3 and "none of the sets" in result.stderr
    assert cli("why", work).exit_code == 18 and "set 2" in cli("why", work).stderr
    assert cli("restore", work, "--yes").exit_code == 18


@damages
@pytest.mark.parametrize("command", [["status"], ["why"], ["verify"], ["restore"], ["log"], ["clean"], ["drop", "1"]])
def test_a_newer_format_is_refused_with_12(work: Path, command: Sequence[str]) -> None:
    (work / ".safepoint.d/FORMAT").write_text(f"safepoint {FORMAT + 1}\n")
    before = snapshot(work)
    result = cli(*command, work)
    assert result.exit_code == 12 and f"format {FORMAT + 1}" in result.stderr
    assert snapshot(work) == before


@damages
def test_a_record_of_a_newer_format_is_refused_with_12(work: Path) -> None:
    path = Path(Root(str(work)).record(3))
    path.write_bytes(seal({**unseal(path.read_bytes()), "format": FORMAT + 1}))
    result = cli("status", work)
    assert result.exit_code == 12 and "newer" in result.stderr


@pytest.mark.parametrize(
    "life", [Life(2, "2f6a91c04d8e37b5"), Life(1, "00000000000000ab")], ids=["another life", "another half"]
)
def test_a_rank_whose_root_is_of_another_history_is_passed_over_by_every_command(tmp_path: Path, life: Life) -> None:
    """G1, G5: one root came back from a backup, with a set of the same number and step."""
    document.make(str(tmp_path), 2, 2)
    path = Path(Root(str(tmp_path), 1, 2).record(2))
    record = parse_record(path.read_bytes())
    path.write_bytes(dump(record._replace(life=life.number, history=life.history)))
    newest, before = answer("status", tmp_path)["sets"]
    assert (newest["state"], before["state"]) == ("incomplete", "complete") and "another history" in str(
        newest["reasons"]
    )
    assert answer("why", tmp_path)["set"] == 1
    assert cli("restore", tmp_path, "--set", "2", "--yes").exit_code == 18
    assert cli("restore", tmp_path, "--set", "2", "--to", tmp_path / "new").exit_code == 18
    assert answer("restore", tmp_path, "--yes")["set"] == 1
    assert b"\x02" in (tmp_path / "u-1.npy").read_bytes()[:2]


def test_foreign_names_are_reported_and_left_alone(work: Path) -> None:
    (work / ".safepoint.d/notes").write_text("mine")
    (work / ".safepoint.d/rank-00000/set-1").mkdir()
    assert answer("status", work)["foreign"] == ["notes", "rank-00000/set-1"]
    assert "not made by safepoint: notes, rank-00000/set-1" in cli("status", work).stdout
    cli("clean", work, "--yes")
    assert (work / ".safepoint.d/notes").read_text() == "mine" and (work / ".safepoint.d/rank-00000/set-1").is_dir()


def test_ranks_that_the_newest_set_does_not_have_are_reported(ranked: Path) -> None:
    shutil.copytree(ranked / ".safepoint.d/rank-00001", ranked / ".safepoint.d/rank-00009")
    assert "ranks that the newest set does not have: 9" in cli("status", ranked).stdout


def test_status_says_which_rank_lacks_a_set_and_why(ranked: Path) -> None:
    said = answer("status", ranked)
    assert [s["state"] for s in said["sets"]] == ["incomplete", "complete", "complete"]
    assert said["sets"][0]["ranks"] == {"needed": [0, 1, 2, 3], "committed": [0, 1, 3]}
    assert list(said["sets"][0]["reasons"]) == ["2"] and said["restart"]["set"] == 2
    shutil.rmtree(ranked / ".safepoint.d/rank-00002/set-00000003")
    assert "rank 2: does not have it" in cli("status", ranked).stdout


def test_an_uncommitted_set_of_a_machine_that_went_down_is_not_counted_on(work: Path) -> None:
    unrecorded(work, 3)
    said = answer("status", work)
    assert said["sets"][0]["state"] == "uncommitted" and said["restart"]["set"] == 2
    assert "the machine went down" in said["sets"][0]["reasons"]["0"]
    assert "Not set 3 (step 20): the machine went down" in cli("why", work).stdout


def test_a_set_that_is_provably_whole_though_its_process_died_is_counted_on(tmp_path: Path) -> None:
    if Disk().place(str(tmp_path)).mount is None:
        pytest.skip("nothing can be proven on this file system")
    (tmp_path / ".safepoint").write_text("u.npy\n")
    with safepoint.Session(tmp_path) as session:
        for step in (1, 2):
            (tmp_path / "u.npy").write_bytes(b"%d" % step)
            session.hide(step, wait=True)
        session.close()
    os.unlink(Root(str(tmp_path)).record(2))
    before = snapshot(tmp_path)
    said = answer("status", tmp_path)
    assert (said["sets"][0]["state"], said["restart"]["set"]) == ("completable", 2)
    assert snapshot(tmp_path) == before, "the proof moved something"
    assert "Restore commits and gives back set 2 (step 2)" in cli("why", tmp_path).stdout
    assert "restored set 2" in cli("restore", tmp_path).stdout
    assert (tmp_path / "u.npy").read_bytes() == b"2"


def test_what_vanishes_while_it_is_looked_at_is_no_error(work: Path) -> None:
    """A run prunes its sets beside us: neither a traceback nor damage may come of that."""
    code = (
        "import sys, pathlib, safepoint\nw = pathlib.Path(sys.argv[1])\n"
        "s = safepoint.Session(w, keep=1); s.restore(); n = 100\nprint('ready', flush=True)\n"
        "while True:\n"
        "  for p in ('u.npy', 'big.dat'): (w / p).write_bytes(b'x' * n)\n"
        "  (w / 'run.zarr').mkdir(exist_ok=True); (w / 'fields/a.vtk').write_text('a')\n"
        "  s.hide(n, wait=True); n += 1\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(work)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        states = set()
        try:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                states |= {s["state"] for s in answer("status", work)["sets"]}
        finally:
            running.kill()
    assert states <= {"complete", "saving", "completable"} and "complete" in states


def test_a_set_that_takes_the_place_of_the_only_one_meanwhile_is_seen(tmp_path: Path) -> None:
    """At the look at the newest set it is only prepared; then it is committed, and the one before is pruned."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    session = safepoint.Session(tmp_path, keep=1)
    session.restore()

    def save(step: int) -> None:
        (tmp_path / "u.dat").write_text(str(step))
        session.hide(step, wait=True)

    class Beside(Disk):
        late = 0

        def listdir(self, path: str) -> list[str]:
            found = super().listdir(path)
            if path == Root(str(tmp_path)).stored(2, "") and not found and not self.late:
                self.late = 1
                save(2)
            return found

    save(1)
    disk = Beside()
    seen = look(disk, str(tmp_path))
    session.finish()
    assert disk.late and [(s.number, s.state) for s in seen.sets] == [(2, "complete")]


# verify, show, log.


@damages
def test_verify_finds_the_flipped_bit_that_status_cannot_see(work: Path) -> None:
    assert cli("verify", work).exit_code == 0
    hurt(work, 2)
    assert cli("status", work).exit_code == 0
    result = cli("verify", work)
    assert result.exit_code == 18 and "the checksum of u.npy differs" in result.stdout
    said = answer("verify", work, code=18)
    assert said["damaged"] == [2]
    assert [s["ranks"][0]["state"] for s in said["sets"]] == ["ok", "damaged", "ok"]
    assert cli("verify", work, "--set", 3).exit_code == 0


@damages
def test_verify_names_the_rank(ranked: Path) -> None:
    hurt(ranked, 2, "files/u-3.npy", rank=3)
    said = answer("verify", ranked, "--set", 2, code=18)
    assert [(r["rank"], r["state"]) for r in said["sets"][0]["ranks"]] == [
        (0, "ok"), (1, "ok"), (2, "ok"), (3, "damaged"),
    ]  # fmt: skip
    assert re.search(r"2 +200 +0-2 .* ok\n", cli("verify", ranked).stdout)


def test_show_lists_the_files_with_how_they_are_kept(work: Path) -> None:
    files = {row["path"]: row for row in answer("show", 2, work)["files"]}
    assert {path: row["kept"] for path, row in files.items()} == {
        "u.npy": "as it is", "big.dat": "compressed", "history.csv": "in place", "fields/10.vtk": "as it is",
        "run.zarr": "in the record", "run.zarr/0.0": "as it is",
    }  # fmt: skip
    assert files["big.dat"]["stored"] < files["big.dat"]["size"] == len("the same at 10\n") * 500
    text = cli("show", 2, work, "--checksums").stdout
    assert files["u.npy"]["checksum"] in text and files["u.npy"]["checksum"] not in cli("show", 2, work).stdout


@pytest.mark.parametrize(
    "command", [["show", 7], ["verify", "--set", 7], ["diff", 7, 1], ["drop", 7], ["restore", "--set", 7]]
)
def test_a_set_that_is_not_there_is_named_with_those_that_are(work: Path, command: Sequence[object]) -> None:
    result = cli(*command, work)
    assert result.exit_code == 20 and "no set 7" in result.stderr and "3, 2, 1" in result.stderr


def test_log_tells_the_events_of_all_ranks_in_order_and_skips_torn_lines(work: Path) -> None:
    log = work / ".safepoint.d/rank-00000/log.jsonl"
    other = work / ".safepoint.d/rank-00001"
    other.mkdir()
    (other / "log.jsonl").write_text('{"time": 1.0, "event": "early", "pid": 1}\n')
    with log.open("a") as file:
        file.write('{"time": 17')
    events = answer("log", work)["events"]
    assert events[0] == {"rank": 1, "time": 1.0, "event": "early", "pid": 1}
    assert [e["set"] for e in events if e["event"] == "saved"] == [1, 2, 3]
    assert answer("log", work, "--last", 2)["events"] == events[-2:]
    assert cli("log", work, "--last", 1).stdout.count("\n") == 2


# why and restore.


def test_why_foretells_what_restore_then_does_to_each_file(work: Path) -> None:
    said = answer("why", work)
    foretold = {fate["path"].rstrip("/"): fate["action"] for fate in said["files"]}
    assert foretold == {
        "u.npy": "replaced", "big.dat": "put back", "history.csv": "cut back", "run.zarr": "put back",
        "fields/20.vtk": "put back", "fields/30.vtk": "discarded",
    }  # fmt: skip
    before = in_place(work)
    assert said["set"] == 3
    result = cli("restore", work)
    assert "restored set 3 (step 20)" in result.stdout and "moved to discarded/: fields/30.vtk" in result.stdout
    after = in_place(work)
    done = {
        path: "put back" if path not in before else "discarded" if path not in after else
        "cut back" if len(after[path] or b"") < len(before[path] or b"") and path == "history.csv" else "replaced"
        for path in foretold
    }  # fmt: skip
    assert done == foretold
    assert numpy.array_equal(numpy.load(work / "u.npy"), numpy.arange(12.0).reshape(3, 4) + 10)
    assert (work / "history.csv").read_text() == "0, 0.0\n10, 2.5\n20, 5.0\n"


def test_what_restore_by_hand_gives_back_is_what_the_program_gets(work: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(work, tmp_path / "other"))
    assert cli("restore", work).exit_code == 0
    session = safepoint.Session(other)
    point = session.restore()
    session.close()
    assert point and point.number == 3 and in_place(work) == in_place(other)


@damages
def test_why_reads_the_checksums_and_falls_back_unless_quick(work: Path) -> None:
    hurt(work, 3)
    said = answer("why", work)
    assert said["set"] == 2
    assert said["passed_over"] == [{"set": 3, "step": 20, "reason": "the checksum of u.npy differs"}]
    assert answer("why", work, "--quick")["set"] == 3
    assert "Not set 3 (step 20): the checksum of u.npy differs." in cli("why", work).stdout


def test_why_of_a_first_start_and_of_a_finished_run(tmp_path: Path) -> None:
    work = tmp_path / "first"
    work.mkdir()
    (work / ".safepoint").write_text("u.npy\ngiven.dat\n")
    (work / "given.dat").write_bytes(b"given")
    safepoint.Session(work).close()
    (work / "u.npy").write_bytes(b"tor")
    said = answer("why", work)
    assert said["outcome"] == "first start"
    assert [(fate["path"], fate["action"]) for fate in said["files"]] == [("u.npy", "discarded")]
    (work / "given.dat").write_bytes(b"over")
    result = cli("why", work)
    assert (result.exit_code, result.stdout) == (19, "") and "given.dat was there at the first start" in result.stderr
    finished = make(tmp_path / "finished", finish=True)
    assert answer("why", finished)["outcome"] == "finished"
    (finished / "u.npy").unlink()
    assert "no longer what they were: u.npy" in cli("why", finished).stdout


def test_an_older_set_is_restored_only_when_the_loss_of_the_newer_is_agreed_to(work: Path) -> None:
    before = snapshot(work)
    result = cli("restore", work, "--set", 1)
    assert result.exit_code == 10 and "set 3 (step 20)" in result.stderr and "--yes" in result.stderr
    code, output = ask("n", "restore", work, "--set", 1)
    assert code == 10 and "set 2 (step 10): whole" in output and "nothing was changed" in output
    assert snapshot(work) == before
    code, output = ask("y", "restore", work, "--set", 1)
    assert code == 0 and "restored set 1 (step 0)" in output
    assert (work / "history.csv").read_text() == "0, 0.0\n"
    assert [s["number"] for s in answer("status", work)["sets"]] == [1]


def test_restore_by_hand_serves_all_ranks_and_only_what_all_have(ranked: Path) -> None:
    result = cli("restore", ranked)
    assert result.exit_code == 10 and "rank 2: the machine went down" in result.stderr
    assert not (ranked / "u-1.npy").exists()
    assert cli("restore", ranked, "--yes").exit_code == 0
    for rank in range(4):
        data = (ranked / f"u-{rank}.npy").read_bytes()
        assert data[:3] == bytes([rank + 2, rank + 3, rank + 4])
        assert (ranked / f"fields/v-{rank}.vtk").read_text().startswith("field 2\n")
    assert len((ranked / "history.csv").read_text().splitlines()) == 2
    assert [(s["number"], s["state"]) for s in answer("status", ranked)["sets"]] == [(2, "complete"), (1, "complete")]
    assert [e["rank"] for e in answer("log", ranked)["events"] if e["event"] == "restored"] == [0, 1, 2, 3]


@damages
def test_a_part_that_turns_out_damaged_leaves_every_file_of_every_rank_alone(ranked: Path) -> None:
    """G6, by hand: set 2 is staged on ranks 0 to 2 when rank 3 finds its part damaged."""
    hurt(ranked, 2, "files/u-3.npy", rank=3)
    before = in_place(ranked)
    result = cli("restore", ranked, "--set", 2, "--yes")
    assert result.exit_code == 18 and "rank 3: the checksum of u-3.npy differs" in result.stderr
    assert in_place(ranked) == before
    assert not list(ranked.glob(".safepoint.d/*/stage"))
    assert "restored set 1 (step 100)" in cli("restore", ranked, "--yes").stdout


def test_a_set_is_extracted_elsewhere_with_times_modes_and_the_beginning_of_what_grows(
    work: Path, tmp_path: Path
) -> None:
    before = snapshot(work)
    top = tmp_path / "out"
    said = answer("restore", work, "--set", 2, "--to", top)
    assert (said["outcome"], said["set"], said["to"]) == ("extracted", 2, str(top))
    assert in_place(top) == {
        "u.npy": in_place(top)["u.npy"], "big.dat": b"the same at 10\n" * 500, "history.csv": b"0, 0.0\n10, 2.5\n",
        "fields": None, "fields/10.vtk": b"field 10", "run.zarr": None, "run.zarr/0.0": bytes([10]) * 64,
    }  # fmt: skip
    rows = {row["path"]: row for row in answer("show", 2, work)["files"]}
    for path, row in rows.items():
        assert (top / path).stat().st_mtime == pytest.approx(row["modified"], abs=1e-6), path
    assert snapshot(work) == before
    again = cli("restore", work, "--to", top)
    assert again.exit_code == 10 and "not an empty directory" in again.stderr


def test_a_read_only_copy_without_a_manifest_can_be_extracted_by_an_ordinary_user(work: Path, tmp_path: Path) -> None:
    (work / ".safepoint").unlink()
    top = tmp_path / "out"
    top.mkdir()
    for path in [work, *work.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with ordinary_user(top):
        result = cli("restore", work, "--to", top)
    for path in [work, *work.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert result.exit_code == 0 and (top / "fields/20.vtk").read_text() == "field 20"


@damages
def test_a_damaged_set_is_not_extracted_and_leaves_nothing_behind(work: Path, tmp_path: Path) -> None:
    hurt(work, 3)
    top = tmp_path / "out"
    result = cli("restore", work, "--set", 3, "--to", top)
    assert result.exit_code == 18 and "the checksum of u.npy differs" in result.stderr and not top.exists()
    assert "extracted set 2" in cli("restore", work, "--to", top).stdout


def test_a_finished_run_is_left_alone_and_an_asked_for_set_explained(tmp_path: Path) -> None:
    work = make(tmp_path / "work", finish=True)
    before = in_place(work)
    assert "was finished at step 99" in cli("restore", work).stdout
    result = cli("restore", work, "--set", 2)
    assert result.exit_code == 20 and "its sets are gone" in result.stderr
    assert in_place(work) == before


# What changes something.


@pytest.mark.parametrize("command", [["restore"], ["drop", "1", "--yes"], ["clean", "--yes"], ["hide"], ["finish"]])
def test_beside_a_run_nothing_is_changed_and_the_run_is_named(work: Path, command: Sequence[str]) -> None:
    with a_run(work) as running:
        before = snapshot(work)
        result = cli(*command, work)
        assert result.exit_code == 13 and f"process {running.pid} on " in result.stderr
        assert snapshot(work) == before


def test_while_a_command_holds_the_directory_it_is_named_to_a_run(work: Path) -> None:
    mine, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "safepoint", "drop", "1", str(work)], stdin=its, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stderr and running.stderr.read(6) == "Remove"
            with pytest.raises(safepoint.LockedError, match=rf"process {running.pid} .* drop 1"):
                safepoint.Session(work)
        finally:
            os.write(mine, b"n\n")
            running.communicate(timeout=60)
    assert running.returncode == 10 and [s["number"] for s in answer("status", work)["sets"]] == [3, 2, 1]


def test_a_set_is_dropped_when_that_is_agreed_to(work: Path) -> None:
    assert cli("drop", 2, work).exit_code == 10
    assert ask("n", "drop", 2, work)[0] == 10
    assert answer("drop", 2, work, "--yes")["restart"] == 3
    assert [s["number"] for s in answer("status", work)["sets"]] == [3, 1]


def test_the_last_whole_set_is_dropped_by_force_only(work: Path) -> None:
    for number in (1, 2):
        assert cli("drop", number, work, "--yes").exit_code == 0
    result = cli("drop", 3, work, "--yes")
    assert result.exit_code == 10 and "no whole set would be left" in result.stderr
    assert cli("drop", 3, work, "--yes", "--force").exit_code == 0
    assert answer("status", work, code=20)["sets"] == []


def test_clean_removes_what_no_restart_takes_and_nothing_else(work: Path) -> None:
    root = work / ".safepoint.d/rank-00000"
    for name in ("failed-00000009/files", "gone-00000008", "stage", "discarded"):
        (root / name).mkdir(parents=True)
        (root / name / "x").write_bytes(b"x" * 1000)
    listed = answer("clean", work, "--dry-run")
    assert {Path(each["path"]).name for each in listed["removed"]} == {
        "failed-00000009",
        "gone-00000008",
        "discarded",
        "set-00000004",
    }
    assert listed["freed"] == 3000 and (root / "gone-00000008/x").exists()
    assert cli("clean", work).exit_code == 10 and (root / "gone-00000008/x").exists()
    before = in_place(work)
    assert answer("clean", work, "--yes")["freed"] == 3000
    assert {path.name for path in root.iterdir()} == {
        "lock", "log.jsonl", "set-00000001", "set-00000002", "set-00000003", "stage",
    }  # fmt: skip
    assert in_place(work) == before and cli("verify", work).exit_code == 0
    assert "nothing to remove" in cli("clean", work).stdout


def test_clean_keeps_a_failed_set_that_may_hold_the_initial_files(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.npy\n")
    (tmp_path / "u.npy").write_bytes(b"given")
    safepoint.Session(tmp_path).close()
    kept = tmp_path / ".safepoint.d/rank-00000/failed-00000001/files"
    kept.mkdir(parents=True)
    os.rename(tmp_path / "u.npy", kept / "u.npy")
    assert cli("clean", tmp_path, "--yes").exit_code == 0
    assert (kept / "u.npy").read_bytes() == b"given"


@pytest.mark.parametrize("command", [["status"], ["verify"], ["why"], ["restore"], ["clean", "--yes"]])
def test_without_permission_the_file_and_the_cause_are_named(work: Path, command: Sequence[str]) -> None:
    closed = work / ".safepoint.d/rank-00000"
    for path in [work, *work.rglob("*")]:
        os.chown(path, 65534, 65534) if os.geteuid() == 0 else None
    closed.chmod(0)
    try:
        with ordinary_user(work):
            result = cli(*command, work)
    finally:
        closed.chmod(0o755)
    assert result.exit_code == 17
    assert "rank-00000" in result.stderr and "Permission denied" in result.stderr
    assert f"{closed} belongs to " in result.stderr and f"with mode 0000: chmod u+rwx {closed})" in result.stderr


# For job scripts.


def test_a_job_script_saves_and_finishes_with_commands(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    for step in (1, 2, 3):
        (tmp_path / "u.dat").write_text(f"step {step}")
        done = process("hide", "--step", step, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"saved set {step} (step {step}): 1 file\n"), done.stderr
    (tmp_path / "v.dat").write_text("new")
    said = process("hide", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "nothing to hide\n")
    assert "none of these files exists: u.dat; changed since set 3 (step 3): v.dat: list in" in said.stderr
    (tmp_path / "u.dat").write_text("torn")
    assert cli("restore", tmp_path).exit_code == 0 and (tmp_path / "u.dat").read_text() == "step 3"
    assert cli("finish", tmp_path, "--step", 3).exit_code == 0
    assert answer("status", tmp_path)["finished"]["step"] == 3


def test_a_job_script_whose_manifest_lists_another_file_is_told_so_by_its_first_hide(tmp_path: Path) -> None:
    """Each hide is a process of its own: none could count."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    assert process("restore", cwd=tmp_path).returncode == 20
    for changed in ("", "; changed since the start: v.dat: list in .safepoint what is to be saved"):
        (tmp_path / "v.dat").write_text("new")
        said = process("hide", cwd=tmp_path)
        assert (said.returncode, said.stdout) == (0, "nothing to hide\n")
        assert said.stderr == f"safepoint: nothing to hide: none of these files exists: u.dat{changed}\n"


def test_a_first_manifest_is_proposed_from_what_changed_last(tmp_path: Path) -> None:
    for k in range(5):
        (tmp_path / f"f{k}.vtk").write_text("v")
    (tmp_path / "run.log").write_text("l")
    (tmp_path / "odd [name] {1}.dat").write_text("d")
    (tmp_path / "solver.py").write_text("s")
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "z.zarr").mkdir()
    (tmp_path / "z.zarr/0").write_text("0")
    with (tmp_path / "big,1.bin").open("wb") as file:
        file.truncate(200 << 20)
    (tmp_path / "old.dat").write_text("o")
    os.utime(tmp_path / "old.dat", (1e9, 1e9))
    text = answer("init", tmp_path, "--print")["text"]
    assert not (tmp_path / ".safepoint").exists()
    assert cli("init", tmp_path).exit_code == 0 and (tmp_path / ".safepoint").read_text() == text
    entries = {e.text: (e.kind, e.compress) for e in load(str(tmp_path)).entries}
    assert entries == {
        "*.vtk": ("move", None), "run.log": ("append", None), "odd [[]name] {{1}}.dat": ("move", None),
        "z.zarr/": ("move", None), "big,1.bin": ("move", 3),
    }  # fmt: skip
    found, missing = load(str(tmp_path)).find(str(tmp_path), os.lstat)
    assert not missing and "odd [name] {1}.dat" in found and "old.dat" not in found
    assert text.count("# proposed") == len(entries)
    again = cli("init", tmp_path)
    assert again.exit_code == 10 and "is there already" in again.stderr
    assert cli("init", tmp_path, "--force").exit_code == 0


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
    import io

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


# Time.


def test_every_command_answers_soon_for_64_ranks(tmp_path: Path) -> None:
    """As ratios to the start of a Python with click and rich, since machines differ; benchmarks/cli.py has seconds."""
    document.make(str(tmp_path), 64, 3, size=10)

    def least(*command: str) -> float:
        took = []
        for _ in range(3):
            begin = time.perf_counter()
            subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
            took.append(time.perf_counter() - begin)
        return min(took)

    start = least("-c", "import click, rich.table")
    commands = (
        "status",
        "show 3",
        "why --quick",
        "log",
        "clean --dry-run",
        "diff 3 3",
        "init --print",
        "status --json",
    )
    ratios = {c: least("-m", "safepoint", *c.split(), str(tmp_path)) / start for c in commands}
    assert max(ratios.values()) < 7, ratios


# What a second reader found.


@damages
@pytest.mark.parametrize("command", [("hide", "--step", 50), ("finish",)])
def test_a_job_script_that_goes_on_after_a_killed_hide_or_restore_is_asked_to_restore_first(
    work: Path, command: Sequence[object]
) -> None:
    """Else the only copy of the newest files would go, or a mixture pass for a set."""
    unrecorded(work, 3, boot=Disk().place(str(work)).boot)
    for path in work.iterdir():
        if not path.name.startswith(".safepoint"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = snapshot(work / ".safepoint.d/rank-00000/set-00000003")
    result = cli(*command, work)
    assert result.exit_code == 10 and "set 3 is not whole" in result.stderr and "restore first" in result.stderr
    assert snapshot(work / ".safepoint.d/rank-00000/set-00000003") == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc")
@pytest.mark.parametrize(
    "command",
    [
        ("drop", 1, "--yes"),
        ("clean", "--yes"),
        ("restore", "--yes"),
        ("hide", "--step", 40),
        ("finish",),
        ("run", "--until", 1),
    ],
    ids=lambda command: command[0],
)
def test_each_command_that_takes_the_lock_waits_for_a_child_of_a_killed_run(
    work: Path, command: tuple[object, ...]
) -> None:
    """G8, as a restart does: a script that kills a run and then clears up must not fail because of what is dying."""
    write(work, 30)
    where = ("--dir", work, "--", "true") if command[0] == "run" else (work,)
    words = [sys.executable, "-m", "safepoint", *map(str, (*command, *where))]
    with killed_beside_a_child(work) as (dead, end):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr
            said = running.stderr.readline()
            assert f"safepoint: waiting up to 10 s for process {dead} on" in said, said
            end()
            said = running.communicate(timeout=60)[1]
        assert running.returncode == 0, said


@damages
@pytest.mark.parametrize("finished", [False, True])
def test_where_the_directory_of_the_rank_is_gone_each_command_says_so(tmp_path: Path, finished: bool) -> None:
    """G6: with `finished.json` too, as the sets may have been of a run begun after it."""
    work = make(tmp_path / "work", finish=finished)
    shutil.rmtree(work / ".safepoint.d/rank-00000")
    before = snapshot(work)
    commands: list[tuple[object, ...]] = [
        ("status", work), ("why", work), ("verify", work), ("show", 1, work), ("drop", 1, work), ("clean", work),
        ("restore", work, "--yes"), ("restore", work, "--to", tmp_path / "to"), ("hide", work), ("finish", work),
        ("run", "--dir", work, "--", "true"),
    ]  # fmt: skip
    for command in commands:
        result = process(*command)
        assert result.returncode == 18 and "rank-00000 is gone" in result.stderr, (command, result)
        assert "Traceback" not in result.stderr
    assert "restart:   fails" in cli("status", work).stdout
    assert snapshot(work) == before


@pytest.mark.parametrize("command", [("hide", "--step", 50), ("finish",)])
def test_in_the_middle_of_a_killed_swap_nothing_passes_for_a_set(work: Path, command: Sequence[object]) -> None:
    (work / ".safepoint.d/rank-00000/stage").mkdir()
    before = snapshot(work)
    result = cli(*command, work)
    assert result.exit_code == 10 and "a restore was killed here" in result.stderr
    after = {name: data for name, data in snapshot(work).items() if not name.endswith("log.jsonl")}
    assert after.items() <= before.items()


def test_a_failed_fsync_is_not_forgotten_by_the_next_hide_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7: the pages are clean then, so a second fsync would succeed over nothing."""
    work = make(tmp_path / "work", sets=1, torn=False)
    write(work, 10)

    def fail(self: Disk, paths: Any, opened: Any = ()) -> None:
        for path in paths:
            if path.endswith("u.npy"):
                raise SyncFailed(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "sync_files", fail)
        assert cli("hide", "--step", 10, work).exit_code == 16
    result = cli("hide", "--step", 10, work)
    assert result.exit_code == 16 and "u.npy" in result.stderr, result.output
    assert answer("status", work)["restart"]["set"] == 1
    assert cli("restore", "-y", work).exit_code == 0
    write(work, 10)
    assert cli("hide", "--step", 10, work).exit_code == 0


@damages
def test_drop_reads_what_would_be_left_before_it_removes_a_good_set(work: Path) -> None:
    hurt(work, 1)
    hurt(work, 2)
    result = cli("drop", 3, work, "-y")
    assert result.exit_code == 10 and "no whole set would be left" in result.stderr
    assert cli("drop", 2, work, "-y").exit_code == 0


@damages
@pytest.mark.parametrize("left", [None, b"0, 0"])
def test_a_file_that_grows_and_was_cut_or_removed_is_seen_without_reading_it(work: Path, left: bytes | None) -> None:
    history = work / "history.csv"
    history.unlink()
    if left is not None:
        history.write_bytes(left)
    said = answer("status", work, code=18)
    assert said["restart"]["set"] is None and {s["state"] for s in said["sets"]} == {"damaged"}
    assert "history.csv" in cli("status", work).stdout


@damages
def test_verify_names_a_rank_whose_directory_is_not_there(ranked: Path) -> None:
    shutil.rmtree(ranked / ".safepoint.d/rank-00001")
    result = cli("verify", ranked, "--set", 2)
    assert result.exit_code == 18 and "no directory of this rank" in result.stdout
    assert answer("verify", ranked, "--set", 2, code=18)["damaged"] == [2]


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


def test_init_does_not_replace_a_manifest_by_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.npy\n")
    result = cli("init", "--force", tmp_path)
    assert result.exit_code == 10 and (tmp_path / ".safepoint").read_text() == "u.npy\n"


def test_clean_prints_one_object_or_none(tmp_path: Path) -> None:
    work = make(tmp_path / "work", sets=1)
    (work / ".safepoint.d/rank-00000/gone-00000001").mkdir()
    result = cli("clean", "--json", work)
    assert result.exit_code == 10 and result.stdout == ""
    finished = make(tmp_path / "finished", sets=1, finish=True)
    assert answer("clean", "--dry-run", finished)["dry_run"]


def test_a_set_of_two_steps_is_not_extracted(ranked: Path, tmp_path: Path) -> None:
    """A number that means one step on one rank and another on the next is no set."""
    path = Path(Root(str(ranked), 1).record(2))
    path.write_bytes(dump(parse_record(path.read_bytes())._replace(step=999)))
    said = answer("restore", "--to", tmp_path / "there", ranked)
    assert said["set"] == 1


@pytest.mark.parametrize("name", ["l/evil", "l/evil/x"])
def test_what_is_extracted_stays_below_the_directory_whatever_the_records_say(tmp_path: Path, name: str) -> None:
    """Each rank's record is right by itself: links of one, and a file through them of the other."""
    top, outside = tmp_path / "there", tmp_path / "evil"
    (top / "a").mkdir(parents=True)
    (top / "l").symlink_to("..")
    work = make(tmp_path / "work", sets=1)
    root = Root(os.path.realpath(work))
    record = parse_record(Path(root.record(1)).read_bytes())
    file = next(file for file in record.files if file.path == "u.npy")
    moved = file._replace(path=name)
    os.makedirs(os.path.dirname(root.stored(1, name)))
    os.rename(root.stored(1, "u.npy"), root.stored(1, name))
    with pytest.raises(Damaged, match="outside"):
        extract(Disk(), root, record._replace(files=(moved,)), str(top))
    assert not outside.exists()
    os.rename(root.stored(1, name), root.stored(1, "u.npy"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: it looks through /proc")
@pytest.mark.parametrize("command", [("drop", 3, "-y"), ("clean", "-y"), ("restore", "-y")])
def test_what_a_live_run_has_started_is_not_taken_for_what_a_killed_one_left(
    work: Path, command: Sequence[object]
) -> None:
    with a_run(work) as running:
        mark = {**os.environ, "SAFEPOINT_RUN": os.path.realpath(work)}
        child = subprocess.Popen(["sleep", "60"], env=mark)
        try:
            result = cli(*command, work)
        finally:
            child.kill()
            child.wait()
    assert result.exit_code == 13 and f"process {running.pid}" in result.stderr and "is gone" not in result.stderr


# A table that was begun anew after a restart.


@pytest.fixture
def anew(work: Path) -> Path:
    """Set 3 was given back, and the program has begun its table anew, with more rows than there were."""
    cli("restore", work)
    assert (work / "history.csv").read_text() == "0, 0.0\n10, 2.5\n20, 5.0\n"
    (work / "history.csv").write_text("other rows, and longer than those of the set\n")
    return work


@pytest.mark.parametrize("longer", [True, False])
def test_every_command_finds_the_copy_of_a_table_that_was_begun_anew(anew: Path, tmp_path: Path, longer: bool) -> None:
    """G6: the set is whole, whatever the table in place has."""
    if not longer:
        (anew / "history.csv").write_text("")
    before = snapshot(anew)
    assert [s["state"] for s in answer("status", anew)["sets"]] == ["complete"] * 3
    assert answer("verify", anew)["damaged"] == []
    (row,) = [row for row in answer("show", 3, anew)["files"] if row["path"] == "history.csv"]
    assert (row["kept"], row["stored"], row["size"]) == ("in place and as a copy", 23, 23)
    (row,) = [row for row in answer("show", 2, anew)["files"] if row["path"] == "history.csv"]
    assert (row["kept"], row["stored"]) == ("in place", 0)
    for number, rows in ((3, "0, 0.0\n10, 2.5\n20, 5.0\n"), (2, "0, 0.0\n10, 2.5\n")):
        answer("restore", anew, "--set", number, "--to", tmp_path / str(number))
        assert (tmp_path / str(number) / "history.csv").read_text() == rows
    found = {row["path"]: row["state"] for row in answer("diff", 2, 3, anew, code=1)["files"]}
    assert found["history.csv"] == "differ"
    fate = {row["path"]: row for row in answer("why", anew)["files"]}["history.csv"]
    assert (fate["action"], fate["text"]) == (
        "put back", "put back from the copy that the set has of it; the present one moves to discarded/",
    )  # fmt: skip
    assert snapshot(anew) == before
    said = answer("restore", anew)
    assert (said["set"], said["discarded"]) == (3, ["history.csv"])
    assert (anew / "history.csv").read_text() == "0, 0.0\n10, 2.5\n20, 5.0\n"


def test_a_set_is_not_dropped_with_the_only_copy_of_what_the_one_before_needs(anew: Path) -> None:
    """G6: that one is looked at, and is whole; then it must be so afterwards."""
    assert answer("drop", 3, anew, "--yes")["restart"] == 2
    assert answer("verify", anew)["damaged"] == []
    said = answer("restore", anew)
    assert said["set"] == 2 and (anew / "history.csv").read_text() == "0, 0.0\n10, 2.5\n"


def test_a_job_script_may_begin_its_table_anew_after_the_restore(anew: Path) -> None:
    """G1, G2: killed before its next `safepoint hide`, and after it."""
    for name in ("u.npy", "big.dat"):
        (anew / name).write_bytes(b"half")
    assert answer("restore", anew)["set"] == 3
    (anew / "history.csv").write_text("begun anew\n")
    write(anew, 30)
    assert answer("hide", anew, "--step", 30)["number"] == 4
    assert answer("verify", anew)["damaged"] == []
    assert answer("restore", anew)["set"] == 4
    assert (anew / "history.csv").read_text() == "begun anew\n30, 7.5\n"


@damages
def test_restore_says_by_hand_too_what_it_does_not_copy(work: Path) -> None:
    (work / ".safepoint").write_text(MANIFEST + "copy_append_below = 1\n")
    assert "history.csv: its first 23 bytes, which set 3 (step 20) needs, are not copied" in cli("restore", work).stderr
    (work / "history.csv").write_text("")
    result = cli("restore", work, "--yes")
    assert result.exit_code == 18 and "To go on bring back what is missing" in result.stderr
