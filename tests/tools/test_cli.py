"""The command line: what each command says, what it leaves alone, and with which code it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy
import pytest
import write_cli
from testbed.commands import (
    a_run,
    answer,
    cli,
    damages,
    hurt,
    in_place,
    make,
    process,
    snapshot,
    unrecorded,
)
from testbed.paths import HOUSE
from testbed.profiled import function_calls

import safepoint
from safepoint import errors
from safepoint.cli.group import COMMANDS
from safepoint.cli.look.overview import look
from safepoint.disk import Disk
from safepoint.record import Life, dump, parse_record
from safepoint.root import Root
from safepoint.sealed import FORMAT, seal, unseal


# The tool itself.
def test_the_short_help_of_a_command_is_the_first_sentence_of_its_long_one() -> None:
    for name, text in COMMANDS.items():
        if name not in write_cli.ELSEWHERE:
            assert cli(name, "--help").output.split("\n")[2].strip() == text


def test_the_list_of_commands_loads_none_of_them_and_no_table() -> None:
    code = (
        "import sys\nfrom safepoint.cli.group import program\n"
        "program(['--help'], standalone_mode=False)\n"
        "print(*[m for m in sys.modules if m.startswith(('safepoint.cli.', 'rich', 'numpy', 'psutil'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "safepoint.cli.group"
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS if name not in write_cli.ELSEWHERE)
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
    assert [cli("status", "--colour").exit_code, cli("show", "--colour").exit_code, cli("nothing").exit_code] == [
        2,
        2,
        2,
    ]


def test_a_reader_that_has_seen_enough_is_no_error(work: Path) -> None:
    command = f"{sys.executable} -m safepoint show 3 {work} | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("s", "")


def test_an_interrupt_ends_it_with_130_and_no_traceback(work: Path) -> None:
    code = "import os, signal, sys\nfrom safepoint.cli import main\nfrom safepoint.cli.look import overview\n"
    code += "overview.finish_mark = lambda *a: os.kill(os.getpid(), signal.SIGINT)\n"
    code += f"sys.argv[1:] = ['status', {str(work)!r}]; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_every_exit_code_is_in_the_table_of_the_documentation() -> None:
    codes = write_cli.codes()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.SafepointError]
    assert {kind.__name__: kind.code for kind in kinds} == {name: code for code, (name, _) in codes.items() if name}
    text = (HOUSE / "docs/cli.md").read_text("utf-8")
    assert re.findall(r"^\| (\d+) \| `?(\w*)`? \|", text, re.M) == [(str(c), name) for c, (name, _) in codes.items()]


@pytest.mark.house
def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert (HOUSE / "docs/cli.md").read_text("utf-8") == write_cli.page(), "run python docs/write_cli.py"


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
        "top": answer("top", work),
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
    assert {name: set(keys) for name, keys in said.items()} == {name: set(k) for name, k in write_cli.KEYS.items()}
    assert set(answer("status", finished)) == set(write_cli.KEYS["status"])
    assert set(answer("restore", finished)) == set(write_cli.KEYS["restore"])


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
    write_cli.make(str(tmp_path), 2, 2)
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
    if Disk().page_cache(str(tmp_path)).mount is None:
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
        states, newest = set[str](), set[int]()
        try:
            while len(newest) < 8:
                found = answer("status", work)["sets"]
                states |= {s["state"] for s in found}
                newest |= {s["number"] for s in found[:1]}
        finally:
            running.kill()
    assert states <= {"complete", "saving", "completable"} and "complete" in states


def test_a_set_that_takes_the_place_of_the_only_one_meanwhile_is_seen(tmp_path: Path) -> None:
    """At the look at the newest set nothing is in it yet; then it is committed, and the one before is pruned."""
    (tmp_path / ".safepoint").write_text("u.dat\n")
    session = safepoint.Session(tmp_path, keep=1)
    session.restore()

    def save(step: int) -> None:
        (tmp_path / "u.dat").write_text(str(step))
        session.hide(step, wait=True)

    class Beside(Disk):
        late = 0

        def scan(self, path: str) -> list[os.DirEntry[str]]:
            found = super().scan(path)
            if path == Root(str(tmp_path)).stored(2, "") and not found and not self.late:
                self.late = 1
                save(2)
            return found

    save(1)
    os.makedirs(Root(str(tmp_path)).stored(2, ""))
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
    assert answer("show", work)["number"] == answer("status", work)["sets"][0]["number"]
    assert "neither the number of a set nor a directory" in cli("show", "nowhere").stderr
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


def test_why_names_copy_for_a_file_that_is_not_written_for_each_set(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\nbest.dat optional\n")
    session = safepoint.Session(tmp_path)
    session.restore()
    (tmp_path / "best.dat").write_text("best")
    for step in range(2):
        (tmp_path / "u.dat").write_text(str(step))
        session.hide(step, wait=True)
    session.close()
    said = {fate["path"]: fate["text"] for fate in answer("why", tmp_path)["files"]}
    text = "put back; not written for each set: listed as copy it would have stayed in place"
    assert said == {"best.dat": text, "u.dat": "put back"}


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


# Work.
@pytest.mark.proof
def test_the_work_of_each_command_grows_as_the_ranks_do(tmp_path: Path) -> None:
    """So it answers soon for thousands of ranks too; benchmarks/cli.py has the seconds."""
    for ranks in ("8", "32"):
        (tmp_path / ranks).mkdir()
        write_cli.make(str(tmp_path / ranks), int(ranks), 3, size=10)
    for command in ("status", "show 3", "why --quick", "log", "clean --dry-run", "diff 3 3", "init --print"):
        few, more = (partial(cli, *command.split(), tmp_path / ranks) for ranks in ("8", "32"))
        few()  # what it loads is not counted
        each = (function_calls(more) - (least := function_calls(few))) / 24
        assert each < 1.1 * least / 8 and each < 15_000, (command, least, each)


@damages
@pytest.mark.parametrize("finished", [False, True])
def test_where_the_directory_of_the_rank_is_gone_each_command_says_so(tmp_path: Path, finished: bool) -> None:
    """G6: with `finished.json` too, as the sets may have been of a run begun after it."""
    work = make(tmp_path / "work", finish=finished)
    shutil.rmtree(work / ".safepoint.d/rank-00000")
    before = snapshot(work)
    for command in (
        ("status", work), ("why", work), ("verify", work), ("show", 1, work), ("drop", 1, work), ("clean", work),
        ("restore", work, "--yes"), ("restore", work, "--to", tmp_path / "to"), ("hide", work), ("finish", work),
        ("run", "--dir", work, "--", "true"),
    ):  # fmt: skip
        result = cli(*command)
        assert result.exit_code == 18 and "rank-00000 is gone" in result.stderr, (command, result)
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
