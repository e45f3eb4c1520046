"""The directory of a run: whose it is, what a full disk and a limit do, forks, and what reading refuses."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed import mounts
from testbed.traced_threads import compiled, events, ran, run_of

from safepoint.errors import FormatError
from safepoint.threads import export, kinds, sites
from safepoint.threads.trace import Run


def records(run: Run) -> list[int]:
    return sorted(len(thread.records) for thread in run.threads)


def test_run_json_says_how_it_ran_and_that_it_ended(tmp_path: Path) -> None:
    before = time.time()
    about = run_of(compiled("chain.c"), tmp_path, "10", "2", SP_EDGES="3", SP_STATISTICS="1").about
    assert before <= about["begin"] <= about["end"] <= time.time()
    level = dict.fromkeys(("regions", "variables", "procedures"), "full")
    assert (about["format"], about["build"], about["level"], about["regions"]) == (1, "", level, None)
    assert (about["edges"], about["statistics"], about["threads"]) == (3, True, 2)
    assert (about["ended"], about["stopped"]) == ("exit", None)
    assert about["argv"][1:] == ["10", "2"] and about["host"] == os.uname().nodename and "gcc" in about["compiler"]


@pytest.mark.parametrize("limit", ["11M", "11m", "11264k"])
def test_a_limit_stops_the_recording_and_not_the_program(limit: str, tmp_path: Path) -> None:
    done = ran(compiled("chain.c"), tmp_path, "2000000", "2", SP_LEVEL="full", SP_MAX=limit)
    run = Run(tmp_path / "chain.threads")
    assert done.stdout == "ended\n" and "recording stopped (limit 11534336), the program goes on" in done.stderr
    assert (run.about["stopped"], run.about["ended"]) == ("limit 11534336", "exit")
    assert sum(path.stat().st_size for path in run.directory.glob("*.ev")) <= 11 << 20
    assert sum(records(run)) > (8 << 20) // 16


def test_a_limit_of_the_process_for_files_stops_the_recording_and_not_the_program(tmp_path: Path) -> None:
    """The system would send SIGXFSZ."""
    limit = 5 << 20
    command = ["prlimit", f"--fsize={limit}", str(compiled("chain.c")), "2000000", "2"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "SP_LEVEL": "full"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    run = Run(tmp_path / "chain.threads")
    assert (run.about["stopped"], run.about["ended"]) == ("File too large", "exit")
    assert max(records(run)) == (4 << 20) // 16 - 5  # of its last event, half was cut


@pytest.mark.skipif(mounts.why_not("ext4") is not None, reason=f"a full disk: {mounts.why_not('ext4')}")
def test_a_full_disk_stops_the_recording_and_not_the_program() -> None:
    program = compiled("chain.c")
    with mounts.mounted("ext4", 64) as place:
        done = ran(program, place, "4000000", "4", SP_LEVEL="full")
        about = Run(place / "chain.threads").about
        assert done.stdout == "ended\n" and "recording stopped (disk full)" in done.stderr
        assert (about["stopped"], about["ended"]) == ("disk full", "exit")
        assert sum(records(Run(place / "chain.threads"))) > (30 << 20) // 16  # and nothing stays mapped
        run_of(program, place, "100", "4")  # the next one has the space again
        assert records(Run(place / "chain.threads")) == [1 + 100 + 33] * 4


def test_a_child_of_fork_records_nothing_and_ends_nothing(tmp_path: Path) -> None:
    run = run_of(compiled("forks.c"), tmp_path)
    assert [event.site for event in events(run.threads[0])] == [1] * 2000
    assert len(run.threads) == 1 and run.sites.by_number == {} and run.about["ended"] == "exit"


def test_a_run_replaces_the_one_before_it(tmp_path: Path) -> None:
    run_of(compiled("chain.c"), tmp_path, "10", "4")
    run = run_of(compiled("chain.c"), tmp_path, "20", "2")
    assert records(run) == [1 + 20 + 6] * 2
    assert sorted(path.name for path in run.directory.iterdir()) == ["00000.ev", "00001.ev", "run.json", "sites.jsonl"]


def test_two_at_once_do_not_share_a_directory(tmp_path: Path) -> None:
    program = compiled("waits.c")
    environ = {**os.environ, "SP_LEVEL": "full"}
    with subprocess.Popen([program], cwd=tmp_path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as first:  # fmt: skip
        assert first.stdout is not None and first.stdout.readline() == "waits\n"
        second = subprocess.run([program], cwd=tmp_path, env=environ, input="\n", capture_output=True, text=True)
        assert second.returncode == 0 and "another program writes one now in waits.threads" in second.stderr
        first.communicate("\n")
    run = Run(tmp_path / "waits.threads")
    assert (run.about["pid"], run.about["ended"]) == (first.pid, "exit")
    assert [event.value for event in events(run.threads[0])] == [1, 2]
    assert run.sites.by_number[1][:6] == (1, "variable-write", 'a "name" \\ here', "waits.c", 7, 8)


@pytest.mark.parametrize("name", ["run.json.new", "run.json", "sites.jsonl", "00000.ev"])
def test_a_file_of_the_user_with_a_name_of_ours_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "chain.threads").mkdir()
    (tmp_path / "chain.threads" / name).write_text("what I have measured")
    done = ran(compiled("chain.c"), tmp_path, "20", "1", SP_LEVEL="full")
    assert "there is something else than a trace in chain.threads" in done.stderr
    assert (tmp_path / "chain.threads" / name).read_text() == "what I have measured"


@pytest.mark.parametrize("left", ["", '{"form', '{"format":1,"build":"","argv":['])
def test_what_a_kill_at_the_very_start_leaves_is_replaced(tmp_path: Path, left: str) -> None:
    (tmp_path / "chain.threads").mkdir()
    (tmp_path / "chain.threads" / "run.json.new").write_text(left)
    assert run_of(compiled("chain.c"), tmp_path, "20", "1").about["ended"] == "exit"


def test_a_directory_with_something_else_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    program = compiled("chain.c")
    run_of(program, tmp_path, "10", "1")
    (tmp_path / "chain.threads" / "notes.txt").write_text("mine")
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "chain.threads").iterdir())
    done = ran(program, tmp_path, "20", "1", SP_LEVEL="full")
    assert "there is something else than a trace in chain.threads" in done.stderr
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "chain.threads").iterdir()) == before
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "00000.ev").write_text("mine too")
    assert "something else" in ran(program, tmp_path, "20", "1", SP_LEVEL="full", SP_DIR="own").stderr
    assert (tmp_path / "own" / "00000.ev").read_text() == "mine too"


@pytest.mark.parametrize("variable", ["SP_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"])
def test_each_rank_has_its_own_directory(variable: str, tmp_path: Path) -> None:
    ran(compiled("chain.c"), tmp_path, "10", "1", **{"SP_LEVEL": "full", variable: "3"})
    ran(compiled("chain.c"), tmp_path, "10", "1", **{"SP_LEVEL": "full", variable: "12", "SP_DIR": "there"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.threads-3", "there-12"]


def test_a_place_that_cannot_be_written_is_said_and_the_program_goes_on(tmp_path: Path) -> None:
    done = ran(compiled("chain.c"), tmp_path, "10", "2", SP_LEVEL="full", SP_DIR="no/such")
    assert done.stdout == "ended\n" and "cannot make no/such: No such file or directory" in done.stderr


def test_a_program_that_changes_its_directory_goes_on_in_the_same_files(tmp_path: Path) -> None:
    """All names are below the directory that was opened."""
    run = run_of(compiled("chain.c"), tmp_path, "200000", "2", CHAIN_CHDIR="/")
    assert records(run) == [1 + 200000 + 66666] * 2 and run.about["ended"] == "exit"


def test_a_writer_waits_for_the_reader_that_discards(tmp_path: Path) -> None:
    """It is never more than SP_AHEAD segments ahead of what the reader has noted in the head of the file."""
    program, ahead = compiled("chain.c"), 2
    environ = {**os.environ, "SP_LEVEL": "full", "SP_AHEAD": str(ahead)}
    with subprocess.Popen([program, "800000", "1"], cwd=tmp_path, env=environ) as running:
        path, done = tmp_path / "chain.threads" / "00000.ev", 0
        while running.poll() is None:
            if path.exists() and path.stat().st_size:
                segments = path.stat().st_size // kinds.SEGMENT
                assert segments <= done + ahead + 1
                done = max(done, segments - 1)
                with open(path, "r+b") as file:
                    file.seek(24)
                    file.write(done.to_bytes(8, "little") + os.getpid().to_bytes(4, "little"))
            time.sleep(0.005)
    run = Run(tmp_path / "chain.threads")
    assert run.about["ended"] == "exit" and records(run) == [1 + 800000 + 266666]


# Reading.


def damaged(run: Run, name: str, change: Callable[[bytes], bytes]) -> None:
    path = run.directory / name
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("00000.ev", lambda data: b"SPTHRDS2" + data[8:], "not a trace of the layout SPTHRDS1"),
        ("run.json", lambda data: data.replace(b'"format":1', b'"format":2'), "not of format 1"),
        ("run.json", lambda data: data[:40], "not JSON"),
        ("run.json", lambda data: data.replace(b'"build":""', b'"build":"other"'), "of build 'other'"),
        ("sites.jsonl", lambda data: data.replace(b'"format":1', b'"format":7'), "its format is 7"),
        ("sites.jsonl", lambda data: data + b"[1]\n", "sites.jsonl:3: not an object"),
        ("sites.jsonl", lambda data: data + b'{"number":2}\n', "sites.jsonl:3: a site without all"),
        ("sites.jsonl", lambda data: data + b"{no}\n", "sites.jsonl:3: not a line of JSON"),
    ],
)
def test_another_layout_is_refused_with_the_file(
    name: str, change: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    run = run_of(compiled("waits.c"), tmp_path)
    damaged(run, name, change)
    with pytest.raises(FormatError, match=said) as error:
        Run(run.directory)
    assert str(run.directory) in str(error.value)


def test_a_line_of_a_site_that_a_kill_has_cut_is_left_out(tmp_path: Path) -> None:
    run = run_of(compiled("waits.c"), tmp_path)
    damaged(run, "sites.jsonl", lambda data: data + b'{"number":2,"type":"re')
    assert list(sites.read(run.directory / "sites.jsonl").by_number) == [1]


def test_the_text_has_an_event_in_each_line(tmp_path: Path) -> None:
    """In the form of 2009."""
    run = run_of(compiled("every.c"), tmp_path, SP_STATISTICS="1")
    main, thread = (path.read_text().splitlines() for path in export.write(run, tmp_path / "text"))
    assert [path.name for path in sorted((tmp_path / "text").iterdir())] == [
        "every_trace_0.log",
        "every_trace_main.log",
    ]
    assert main == ["regions=full variables=full procedures=full", "edges=-1 regions=all",
                    f"thread 0 process {run.threads[0].pid} events {len(thread)}"]  # fmt: skip
    assert len(thread) == len(events(run.threads[0]))
    assert thread[:6] == ["E 1 C 1|PID 1 IF -1 NTR -1", "E 2 C 1|PID 1 TN 0", "E 14 C 2|I -1 L 7 S 2 CS -1",
                          "E 15 C 3|IN -1", "E 16 C 2", "E 14 C 4|I 1 L 2 S 1 I2 9 L2 3 S2 -3 CS -1"]  # fmt: skip
    assert {"E 1 C 8|PID n1 IF -1 NTR -1", "E 11 C 20|VR 20 VL 1e+300", "E 12 C 21|VR 21 VL 'a text'", "E 121 C 121",
            "E 124 C 124|N 3", "E 4 C 1|PID 1", "E 5 C 111"} <= set(thread)  # fmt: skip
    assert thread[-1].startswith("E 13 C 30|VR 30 N 3 SUM ")
    assert thread[-1].endswith(" MIN 1.0 MAX 4.0 MEAN 2.3333333333333335 RMS 2.6457513110645907")


def test_the_main_text_has_the_string_of_each_site(tmp_path: Path) -> None:
    run = run_of(compiled("waits.c"), tmp_path)
    string = '*type=variable-write*name1=a "name" \\ here*file=waits.c*line1=7*line2=8**'
    assert list(export.main(run))[-1] == f"1 {len(string)}{string}"


def test_what_a_build_has_described_is_copied_and_another_build_is_refused(tmp_path: Path) -> None:
    """`safepoint threads build` defines the two names in the program."""
    table = tmp_path / "x.sites.jsonl"
    row = {
        "number": 1,
        "type": "region",
        "name": "r",
        "file": "x.f90",
        "line": 1,
        "line2": 2,
        "clauses": "",
        "loose": "atomic",
    }
    table.write_text(json.dumps({"format": 1, "build": "abc"}) + "\n" + json.dumps(row) + "\n")
    (tmp_path / "ids.c").write_text(f'const char sp_build_id[] = "abc";\nconst char sp_build_sites[] = "{table}";\n')
    program = compiled("waits.c", "gcc", str(tmp_path / "ids.c"))
    run = run_of(program, tmp_path)
    assert (run.sites.build, run.about["build"]) == ("abc", "abc")
    assert run.sites.by_number[1].loose == "atomic" and run.sites.by_number[2].file == "waits.c"
    table.write_text(table.read_text().replace("abc", "abd"))
    done = ran(program, tmp_path, SP_LEVEL="full", SP_DIR="other")
    assert "another build than the program's" in done.stderr and not (tmp_path / "other" / "00000.ev").exists()
    table.unlink()
    assert "cannot read the sites" in ran(program, tmp_path, SP_LEVEL="full", SP_DIR="third").stderr
