"""`safepoint report`: its numbers are those of real lives; its page is whole, loads nothing, and is made in no time."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from testbed.profiled import function_calls
from testbed.sweep import some_of

click = pytest.importorskip("click")

from click.testing import CliRunner, Result  # noqa: E402

from safepoint import NothingSavedError  # noqa: E402
from safepoint.cli.group import program  # noqa: E402
from safepoint.ledger.lives import Part, Run  # noqa: E402
from safepoint.pace.interval import daly, young  # noqa: E402
from safepoint.report.advice import limits  # noqa: E402
from safepoint.report.spread import spread  # noqa: E402
from safepoint.words import precise, size  # noqa: E402

LOG = ".safepoint.d/rank-00000/log.jsonl"
SOLVER = """
import errno, json, os, signal, sys, time
import safepoint
from safepoint.disk import Disk

class Full(Disk):
    full = slow = False
    def rename(self, *names, **how):
        time.sleep(0.1 * self.slow)
        return super().rename(*names, **how)
    def sync_files(self, paths, opened=()):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), list(paths)[0])
        super().sync_files(paths)

steps, end, at = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
disk = Full()
session = safepoint.Session(".", disk=disk, store="every")  # none gives way, the one that fails neither
saved = session.restore()
for step in range(saved.step if saved else 0, steps):
    with open("u.dat", "w") as file:
        file.write(f"{step} " * 50_000)
    disk.full = end == "fail" and step == at
    begin = time.perf_counter()
    disk.slow = step == 6
    session.hide(step)
    disk.slow = False
    blocked = time.perf_counter() - begin
    if not disk.full:
        session.wait()
    with open("blocked.txt", "a") as file:
        file.write(f"{blocked}\\n")
    time.sleep(0.02)
    if step == at and end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if step == at and end == "raise":
        raise ValueError("a bug: <1> & http://2")
    if step == at and end == "leave":
        sys.exit()
if end == "finish":
    with open("u.dat", "w") as file:
        file.write("the end")
    session.finish(steps)
"""


def lives(
    work: Path, *ends: tuple[str, int], steps: int = 12, between: Callable[[int], object] = lambda n: None
) -> None:
    """Start the program again and again; each time it ends in the way and at the step given."""
    (work / ".safepoint").write_text("u.dat compress\n")
    for number, (end, at) in enumerate(ends, 1):
        command = [sys.executable, "-c", SOLVER, str(steps), end, str(at)]
        subprocess.run(command, cwd=work, stderr=subprocess.DEVNULL, timeout=60)
        between(number)


def damage_newest(work: Path) -> None:
    newest = max((work / ".safepoint.d/rank-00000").glob("set-*/record.json")).parent
    (packed,) = newest.rglob("u.dat.zst")
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 255
    packed.write_bytes(data)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(program, ["report", *map(str, arguments)], catch_exceptions=False)


def numbers(work: Path) -> dict[str, Any]:
    done = call(work, "--json")
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def drawn(work: Path, title: str) -> str:
    """The picture with this title, of the page that was made last."""
    made = (work / "page.html").read_text(encoding="utf-8")
    return made[made.index(title) :].partition("</svg>")[0]


class Strict(HTMLParser):
    """Every element is closed, in order; and what it shows to people is collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        assert tag in ("meta", "rect", "line", "path", "circle", "polyline")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def page(work: Path) -> str:
    """The text of the page, after it was found to be whole and closed in itself."""
    file = work / "page.html"
    done = call(work, "-o", file)
    assert done.exit_code == 0, done.output
    made = file.read_text(encoding="utf-8")
    root = ElementTree.fromstring(made.partition("\n")[2])
    names = {name for element in root.iter() for name in element.attrib}
    assert not names & {"src", "href", "srcset", "data", "action", "onload", "onclick", "poster"}
    assert not {element.tag for element in root.iter()} & {"script", "link", "img", "iframe", "object", "image", "use"}
    styles = " ".join([*(element.text or "" for element in root.iter("style")), *re.findall('style="[^"]*"', made)])
    assert "@import" not in made and "url(" not in styles and "nan" not in re.findall(r'"(nan|inf)"', made)
    for element in root.iter("rect"):
        assert float(element.get("width", "0")) >= 0 and float(element.get("height", "0")) >= 0
    strict = Strict()
    strict.feed(made)
    assert strict.open == []
    return " ".join(strict.words)


@pytest.mark.leaves_damage
def test_the_numbers_are_those_of_the_lives_that_made_the_log(tmp_path: Path) -> None:
    """Killed; killed, and its newest two sets damaged one after the other; an error; finished."""
    between = {2: lambda: damage_newest(tmp_path)}
    lives(tmp_path, ("kill", 3), ("kill", 6), ("raise", 7), ("leave", 8), ("finish", 0),
          between=lambda number: between.get(number, lambda: None)())  # fmt: skip
    found = numbers(tmp_path)
    assert (found["state"], found["reached_step"], found["starts"], found["roll_backs"]) == ("finished", 12, 5, 0)
    ends = {kind: count for kind, count in found["ends"].items() if count}
    assert ends == {"finished": 1, "killed": 2, "error": 1, "ended": 1}
    assert [life["from_step"] for life in found["lives"]] == [None, 3, 5, 7, 8]
    assert [life["repeated_steps"] for life in found["lives"]] == [0, 1, 0, 0, 0]
    assert (found["failures"], found["repeated_steps"]) == (3, 1)
    assert found["sets"]["saved"] == 4 + 4 + 3 + 2 + 4 and found["sets"]["failed"] == 0
    assert "ValueError: a bug" in found["lives"][2]["error"]
    assert "checksum" in found["lives"][2]["passed_over"][0]


def test_what_hide_cost_is_in_the_log_without_a_line_of_its_own(tmp_path: Path) -> None:
    """All but the hide whose process was killed before the next line: here none, as each set was waited for."""
    lives(tmp_path, ("kill", 4), ("finish", 0))
    measured = [float(row) for row in (tmp_path / "blocked.txt").read_text().split()]
    found = numbers(tmp_path)
    known = [each["blocked_s"] for each in found["sets"]["all"]]
    assert len(known) == len(measured) == 13
    assert all(0 < inside <= around + 1e-6 for inside, around in zip(known, measured, strict=True))
    assert known[7] >= 0.1, "the disk was slow"
    assert found["blocked_s"] == pytest.approx(sum(known))
    assert found["sets"]["slowest_blocked"]["blocked_s"] == max(known)
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    events = ["start", *["saved"] * 5, "restored", *["saved"] * 8, "finished"]
    assert [line["event"] for line in lines] == events
    assert [line["event"] for line in lines if "began" in line] == ["start", "restored"]
    assert [line["set"] for line in lines if line.get("waited")] == [1]  # the first of all


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed; an error, after a set that could not be stored; another error; finished; started once more."""
    work = tmp_path_factory.mktemp("story")
    lives(work, ("kill", 3), ("fail", 6), ("raise", 8), ("finish", 0), ("leave", 0))
    return work


def test_the_parts_of_the_time_at_work_are_the_whole(story: Path) -> None:
    found = numbers(story)
    parts = ("computing_s", "blocked_s", "restoring_s", "lost_s", "lost_unseen_estimate_s")
    assert sum(found[part] for part in parts) == pytest.approx(found["at_work_s"])
    assert 0 < found["at_work_s"] <= found["wall_s"] and all(found[part] >= 0 for part in parts)
    assert found["computing_s"] > 12 * 0.02 and found["interval"]["used_s"] > 0.02  # it sleeps that long between two


def test_a_page_of_many_lives_says_how_each_ended(story: Path) -> None:
    words = page(story)
    assert "Finished, at step 12." in words and "5 starts: 2 finished, 1 killed, 2 ended by an error" in words
    assert f"set 8 (step 6) not stored: u.dat.zst: {os.strerror(errno.ENOSPC)}" in words
    assert "a bug: <1> & http://2" in words  # as text, nothing else
    assert "doi:10.1145/361147.361115" in words and "doi:10.1016/j.future.2004.11.016" in words
    assert numbers(story)["sets"]["failed"] == 1
    drawing = drawn(story, "Step over time")
    assert drawing.count('class="steps"') == 5 and drawing.count('class="tooth"') == 3
    assert "killed; start 2 began from step 3" in drawing and "ended by an error; start 4 began from step " in drawing
    heights = [float(y) for y in re.findall(r"[\d.]+,([\d.]+)", re.findall('points="([^"]*)"', drawing)[-1])]
    assert heights == sorted(heights, reverse=True) and min(heights) == 16  # up, to the last step


def test_the_page_shows_what_the_sets_took_on_the_disk_and_when(story: Path) -> None:
    """With keep = 2 three sets are there when one has become durable: before the oldest goes, in every life."""
    all_sets = [each for each in numbers(story)["sets"]["all"] if not each["error"]]
    stored = [each["stored"] for each in all_sets]
    assert [each["disk_use"] for each in all_sets] == [sum(stored[max(0, n - 2) : n + 1]) for n in range(len(stored))]
    page(story)
    drawing = drawn(story, "Disk use over time")
    assert drawing.count('class="size pale"') == 4 and drawing.count('class="store"') == len(all_sets)
    assert f"set 4 (step 3): {size(sum(stored[1:4]))} in all" in drawing


def test_a_start_that_found_the_run_finished_is_neither_failed_nor_a_new_end(story: Path) -> None:
    found = numbers(story)
    assert (found["state"], found["reached_step"], found["starts"], found["failures"]) == ("finished", 12, 5, 3)
    assert "the files were left alone" in page(story)


def python(work: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=work, capture_output=True, text=True, timeout=60)


def test_a_start_that_was_refused_gives_nothing_up(tmp_path: Path) -> None:
    """It ended before it had begun: what was computed before is still there, and it was no failure."""
    lives(tmp_path, ("kill", 4))
    before = numbers(tmp_path)
    done = python(tmp_path, "import safepoint; s = safepoint.init(); s.hide(0)")
    assert "hide before restore" in done.stderr
    found = numbers(tmp_path)
    assert (found["state"], found["reached_step"], found["failures"]) == ("killed", 4, before["failures"])
    assert (found["lost_s"], found["repeated_steps"], found["ends"]["not begun"]) == (0, 0, 1)
    assert "Not finished: step 4 was reached, then the program was killed." in page(tmp_path)
    lives(tmp_path, ("finish", 0))
    found = numbers(tmp_path)
    first, refused, last = found["lives"]
    assert (refused["ending"], refused["computing_s"], last["from_step"]) == ("not begun", 0, 4)
    assert first["lost_s"] < 0.5 * first["computing_s"] and found["repeated_steps"] == 0
    assert "1 finished, 1 killed, 1 ended before it had begun" in page(tmp_path)


STOPS = {
    "signal": "os.kill(os.getpid(), signal.SIGUSR1)\nassert sp.should_stop()\nhide()\nsp.stop()",
    "by itself": "hide()\nsp.stop()",
    "close": "hide()\nsp.close()",
    "exit": "hide()\nsys.exit()",
}


@pytest.mark.parametrize("stop", some_of(list(STOPS), 2))
def test_what_was_saved_before_an_orderly_stop_is_not_lost(tmp_path: Path, stop: str) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    code = """
import os, signal, sys, time
import safepoint
sp = safepoint.init(signals=["USR1"])
saved = sp.restore()
step = saved.step if saved else 0
def hide():
    global step
    time.sleep(0.2)
    step += 1
    open("u.dat", "w").write("x" * 5_000_000)
    sp.hide(step)
hide()
"""
    python(tmp_path, code + STOPS[stop])
    python(tmp_path, code + "sp.finish(step)")
    found = numbers(tmp_path)
    assert [life["from_step"] for life in found["lives"]] == [None, 2]
    assert (found["lost_s"], found["repeated_steps"], found["failures"]) == (0, 0, 0)
    words = page(tmp_path)
    assert "lost" not in words.partition("How often to save")[0]


def test_what_was_computed_after_the_last_set_is_lost_however_orderly_the_stop(tmp_path: Path) -> None:
    """Set 3 was taken at 3.5 s; asked to stop at 5 s, the program stopped at 9 s without saving."""
    asked = {"time": BEGIN + 5, "pid": 7, "event": "stopping", "why": "SIGUSR1"}
    second = life(BEGIN + 10, 8, range(4, 6))
    write(tmp_path, [*life(BEGIN, 7, range(1, 4)), asked, {**asked, "time": BEGIN + 9, "event": "stopped"}, *second])
    first = numbers(tmp_path)["lives"][0]
    assert first["ending"] == "stopped" and first["lost_s"] == pytest.approx(5.5)
    assert "lost and computed again" in page(tmp_path)


@pytest.mark.parametrize(("ending", "words"), [
    (None, "Not finished: 3 sets were saved, then the program was killed."),
    ({"event": "finished", "set": 3, "step": None}, "Finished, after 3 sets."),
    ({"event": "ended"}, "Not finished: 3 sets were saved, then the program ended."),
    ({"event": "stopped", "why": "halt"}, "Not finished: 3 sets were saved, then the program was stopped in order."),
])  # fmt: skip
def test_without_steps_the_sets_are_counted(tmp_path: Path, ending: dict[str, Any] | None, words: str) -> None:
    lines = [{**line, "step": None} for line in life(BEGIN, 7, range(1, 4))]
    lines.append({"time": BEGIN + 4.5, "pid": 7, "event": "failed", "set": 4, "step": None, "error": "no"})
    write(tmp_path, [*lines, *([{"time": BEGIN + 5, "pid": 7, **ending}] if ending else [])])
    assert words in page(tmp_path)


def test_the_rows_of_what_happened_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    """A kill is at the last sign of life, whatever came before the next start; of another rank the time counts from
    the beginning of the run, not of its own log."""
    hand = {"time": BEGIN + 8, "event": "restored", "pid": 9, "set": 3, "step": 3, "by_hand": True}
    write(tmp_path, [*life(BEGIN, 7, range(1, 4)), hand, *life(BEGIN + 20, 8, range(4, 6))])
    late = life(BEGIN + 20, 18, range(4, 5))
    late.append({"time": BEGIN + 21.5, "pid": 18, "event": "failed", "set": 9, "step": 9, "error": "no room"})
    write(tmp_path, sorted(late, key=lambda line: line["time"]), rank=1)
    (failed,) = [event for event in numbers(tmp_path)["events"] if event["rank"] == 1]
    assert (failed["at"], failed["life"]) == (21.5, 2)
    words = page(tmp_path).partition("What happened")[2]
    row = ["no further line: killed", "restored by hand", "restored set 3", "rank 1: no room", "saved set 4"]
    places = [words.index(each) for each in row]
    assert places == sorted(places)
    assert words.count("no further line: killed") == 2


def test_a_restore_by_hand_is_no_start_of_the_program(tmp_path: Path) -> None:
    lives(tmp_path, ("kill", 3))
    before = numbers(tmp_path)
    line = {"time": time.time(), "event": "restored", "pid": 9, "set": 3, "step": 3, "by_hand": True}
    with (tmp_path / ".safepoint.d/rank-00000/log.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    after = numbers(tmp_path)
    assert (after["starts"], after["failures"]) == (before["starts"], before["failures"])
    assert "restored by hand" in page(tmp_path)


def test_a_run_that_is_going_on_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    code = SOLVER + "\nprint('there', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, "3", "on", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdin and job.stdout and job.stdout.readline() == "there\n"
        before = (tmp_path / LOG).read_bytes()
        found, words = numbers(tmp_path), page(tmp_path)
        assert (tmp_path / LOG).read_bytes() == before
        job.kill()
    assert (found["state"], found["failures"], found["reached_step"]) == ("running", 0, 2)
    assert "Still running: step 2 was reached." in words and "Nothing failed" in words
    assert numbers(tmp_path)["state"] == "killed"


def test_a_job_script_is_one_life_however_many_processes_it_takes(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    for step in range(4):
        (tmp_path / "u.dat").write_text(str(step))
        code = f"""
import safepoint
session = safepoint.Session(in_place=True)
session.{"adopt" if step else "restore"}()
session.hide({step})
session.close()
"""
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    found = numbers(tmp_path)
    assert (found["starts"], found["state"], found["sets"]["saved"], found["failures"]) == (1, "ended", 4, 0)
    assert found["interval"]["used_s"] is not None and "4 sets saved" in page(tmp_path)


def test_going_back_within_a_process_is_a_roll_back(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    code = """
import safepoint
session = safepoint.Session()
session.restore()
for step in (0, 1, 2):
    open("u.dat", "w").write("x")
    session.hide(step)
session.restore()
session.close()
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    found = numbers(tmp_path)
    assert (found["starts"], found["roll_backs"], found["failures"]) == (1, 1, 1)
    assert [life["ending"] for life in found["lives"]] == ["rolled back", "ended"]


# Logs that were written by hand.

BEGIN = 1_700_000_000.0


def write(work: Path, lines: list[dict[str, Any]], rank: int = 0) -> None:
    path = work / f".safepoint.d/rank-{rank:05d}/log.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def life(begin: float, pid: int, numbers: range, *, of: float = 1.0, **look: Any) -> list[dict[str, Any]]:
    """A start, then a set every second; the first line is a second after the beginning."""
    last = numbers[0] - 1
    first = {"event": "restored", "set": last, "step": last} if last else {"event": "start"}
    lines: list[dict[str, Any]] = [{"time": begin + 1, "pid": pid, "began": begin, **first}]
    for place, number in enumerate(numbers, 2):
        saved = {"event": "saved", "set": number, "step": number, "files": 2, "bytes": 3_000_000, "stored": 1_000_000}
        kept = {"seconds": 0.5 * of, "blocked": [[number, 0.1 * of]]}
        lines.append({"time": begin + place, "pid": pid, **saved, **kept, **look})
    return lines


def test_the_accounts_of_a_known_log(tmp_path: Path) -> None:
    """Sets 1, 2, 3 at 2, 3, 4 s; killed; from set 2, taken at 2.5 s, again at 10 s; then sets 3, 4, and the end."""
    second = life(BEGIN + 10, 8, range(3, 5))
    second[0] |= {"set": 2, "step": 2}
    end = {"time": BEGIN + 14, "event": "finished", "pid": 8, "set": 4, "step": 6}
    write(tmp_path, [*life(BEGIN, 7, range(1, 4)), *second, end])
    found = numbers(tmp_path)
    assert (found["wall_s"], found["repeated_steps"], found["reached_step"]) == (14, 1, 6)
    assert found["at_work_s"] == pytest.approx(4 + 4 + found["lost_unseen_estimate_s"])
    assert found["interval"]["used_s"] == pytest.approx(0.9)
    assert found["lost_unseen_estimate_s"] == pytest.approx(0.45)
    assert found["lost_s"] == pytest.approx(1.4)  # from 2.5 s, when set 2 had been taken, to 4 s, without a hide
    assert (found["blocked_s"], found["restoring_s"]) == (pytest.approx(0.5), pytest.approx(2))
    assert found["interval"]["cost_s"] == pytest.approx(0.1)
    assert found["interval"]["mean_between_failures_s"] == pytest.approx(8.45)
    assert found["interval"]["young_s"] == pytest.approx((2 * 0.1 * 8.45) ** 0.5)
    assert found["sets"]["bytes"] == 15_000_000 and found["sets"]["stored"] == 5_000_000
    words = page(tmp_path)
    assert "3.0 MB on average" in words and "3.0 to 1" in words and "6.0 MB/s" in words
    assert "1 step was computed again" in words and "too few" in words


def test_a_set_that_the_restore_completed_is_a_sign_of_life_after_the_last_line(tmp_path: Path) -> None:
    second = life(BEGIN + 10, 8, range(5, 6))
    second[0]["taken"] = BEGIN + 4.7
    write(tmp_path, [*life(BEGIN, 7, range(1, 4)), *second])
    first, _ = numbers(tmp_path)["lives"]
    assert first["end_s"] == pytest.approx(4.7) and first["lost_s"] == 0 and first["repeated_steps"] == 0


def test_torn_lines_cost_no_more_than_themselves(tmp_path: Path) -> None:
    write(tmp_path, life(BEGIN, 7, range(1, 4)))
    with (tmp_path / LOG).open("ab") as file:
        file.write(b'{"time": 17\n\0\0\0\0\n[1]\n"x"\n{"time": "no", "event": "saved"}\n{"event": "saved"}\n{"time": 1')
    found = numbers(tmp_path)
    assert (found["unreadable_lines"], found["sets"]["saved"]) == (7, 3)
    assert "7 lines could not be read" in page(tmp_path)


def test_a_clock_that_jumps_back_does_not_turn_time_around(tmp_path: Path) -> None:
    write(tmp_path, [*life(BEGIN, 7, range(1, 9)), *life(BEGIN - 3600, 8, range(9, 15))])
    found = numbers(tmp_path)
    ends = [(life["begin_s"], life["end_s"]) for life in found["lives"]]
    assert all(begin <= end for begin, end in ends) and ends[0][1] <= ends[1][0]
    assert found["clock_went_back_s"] > 3600 and found["wall_s"] < 60
    assert "clock of the machine went back" in page(tmp_path)


def test_with_ranks_sizes_are_of_all_and_the_slowest_is_named(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, [*life(BEGIN + rank / 100, 7 + rank, range(1, 4), of=1 + (rank == 1)),
                         *life(BEGIN + 20, 17 + rank, range(3, 6))], rank)  # fmt: skip
    failed = {"event": "failed", "set": 6, "step": 6, "error": "rank 2 of 3: set 6 not stored: No space left"}
    with (tmp_path / ".safepoint.d/rank-00002/log.jsonl").open("a") as file:
        file.write(json.dumps({"time": BEGIN + 25, "pid": 19, "seconds": 1.0, **failed}) + "\n")
    found = numbers(tmp_path)
    assert (found["ranks"], found["rank_of_time_line"], found["starts"]) == (3, 0, 2)
    assert [each["bytes"] for each in found["sets"]["all"]] == [9_000_000] * 6
    slow = found["sets"]["slowest_blocked"]
    assert (slow["rank"], slow["blocked_s"]) == (1, 0.2)
    words = page(tmp_path)
    assert "on rank 1" in words and "rank 2: rank 2 of 3: set 6 not stored" in words
    assert [part["rank"] for part in found["by_rank"]] == [0, 1, 2]
    assert [part["blocked_longest_s"] for part in found["by_rank"]] == [0.1, 0.2, 0.1]
    assert [part["bytes"] for part in found["by_rank"]] == [18_000_000] * 3
    drawing = drawn(tmp_path, "Blocked in hide, by rank")
    assert drawing.count("<g>") == 3 and "rank 1: " in drawing


def test_what_a_log_does_not_tell_of_the_disk_is_unknown(tmp_path: Path) -> None:
    """An older version did not write down which sets are there, and which were removed."""
    write(tmp_path, life(BEGIN, 7, range(1, 9)))
    assert {each["disk_use"] for each in numbers(tmp_path)["sets"]["all"]} == {None}
    page(tmp_path)
    assert "Disk use over time" not in (tmp_path / "page.html").read_text()


def test_with_all_sets_kept_the_disk_use_is_that_of_all(tmp_path: Path) -> None:
    lines = life(BEGIN, 7, range(1, 40))
    lines[0]["there"] = []
    write(tmp_path, lines)
    found = numbers(tmp_path)["sets"]["all"]
    assert [each["disk_use"] for each in found] == [sum(each["stored"] for each in found[: n + 1]) for n in range(39)]


@pytest.mark.parametrize("seconds", [1e-300, 5e-324, 0.0])
def test_a_set_that_was_stored_in_no_time_makes_no_rate(tmp_path: Path, seconds: float) -> None:
    write(tmp_path, [{**line, "seconds": seconds, "bytes": 2**63 - 1, "stored": 2**63 - 1} if line["event"] == "saved"
                     else line for line in life(BEGIN, 7, range(1, 4))])  # fmt: skip
    assert page(tmp_path) and call(tmp_path, "--json").exit_code == 0


def test_of_thousands_of_ranks_the_slowest_of_each_few_is_drawn(tmp_path: Path) -> None:
    parts = [Part(rank, 3, 10, (0.1 + (rank == 777), 2.0), None) for rank in range(5000)]
    run = Run(str(tmp_path), 0, 5000, [], [], 0, 0.0, parts)
    made = " ".join(spread(run))
    assert made.count("<g>") <= 240 and "rank 777, the slowest of ranks 777 to 797: 1.1 s, at most 2.0 s" in made
    assert "Rank 777 took 1.1 s" in made and "the rank in the middle 100 ms" in made


@pytest.mark.parametrize("lines", [
    [{"time": BEGIN, "event": "start", "pid": 1}],
    [{"time": BEGIN, "event": "start", "pid": 1}, {"time": BEGIN, "event": "finished", "pid": 1, "set": 0}],
    [{"time": BEGIN, "event": "saved", "pid": 1, "set": 1, "step": None, "files": 0, "bytes": 0, "seconds": 0}],
    [{"time": BEGIN, "event": "restored", "pid": 1, "set": 3, "step": 4, "finished": True}],
    [{"time": BEGIN, "event": "ended", "pid": 1, "error": "E: \x00\ud800\x1b]"}],
    [{"time": BEGIN, "event": "what comes later", "pid": 1}],
])  # fmt: skip
def test_the_least_that_a_log_can_hold_makes_a_page(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    write(tmp_path, lines)
    assert page(tmp_path)
    assert call(tmp_path, "--json").exit_code == 0


def test_a_log_of_an_older_version_makes_a_page_without_what_it_lacks(tmp_path: Path) -> None:
    """No beginning and no time in hide."""
    lines = [*life(BEGIN, 7, range(1, 5)), *life(BEGIN + 9, 8, range(5, 9))]
    write(tmp_path, [{k: v for k, v in line.items() if k not in ("began", "blocked", "taken")} for line in lines])
    found = numbers(tmp_path)
    assert (found["starts"], found["sets"]["saved"], found["interval"]["used_s"]) == (2, 8, pytest.approx(1.0))
    assert "does not have how long hide kept the program waiting" in page(tmp_path)


@pytest.mark.proof
def test_ten_thousand_events_make_a_small_page_and_the_work_grows_as_they_do(tmp_path: Path) -> None:
    for count in (5, 25, 100):
        lines = [line for n in range(count) for line in life(BEGIN + 200 * n, n + 1, range(100 * n + 1, 100 * n + 101))]
        write(tmp_path / str(count), lines)
    few, more = (partial(call, tmp_path / count, "-o", tmp_path / "page.html") for count in ("5", "25"))
    few()  # what it loads is not counted
    assert function_calls(more) < 5 * 1.2 * function_calls(few)
    words = page(tmp_path / "100")
    made = (tmp_path / "100/page.html").read_text()
    assert len(made) < 500_000 and made.count("<rect") < 2_000
    assert "The first 40 starts are not drawn" in words


def test_without_a_log_it_says_so(tmp_path: Path) -> None:
    for make in (lambda: None, (tmp_path / ".safepoint.d").mkdir, (tmp_path / ".safepoint.d/rank-00000").mkdir):
        make()
        done = call(tmp_path, "-o", tmp_path / "page.html")
        assert done.exit_code == NothingSavedError.code and "no log of a run" in done.stderr
        assert not (tmp_path / "page.html").exists()


def test_where_the_page_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, life(BEGIN, 7, range(1, 4)))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert call("..", "--json").exit_code == 0 and os.listdir() == []
    assert call("..", "-o", "-").stdout.startswith("<!DOCTYPE html>") and os.listdir() == []
    assert "Not finished: step 3 was reached" in call("..").stdout and os.listdir() == ["safepoint-report.html"]
    done = call("..", "-o", "missing/page.html")
    assert done.exit_code != 0 and "missing/page.html: No such file or directory" in done.stderr


def test_the_formulas() -> None:
    """Young's and Daly's, against values worked out by hand; and the exact limits of Poisson counts, against tables."""
    assert young(2.0, 100.0) == 20.0
    assert daly(2.0, 100.0) == pytest.approx(20 * (1 + 0.1 / 3 + 0.01 / 9) - 2)
    assert daly(5.0, 2.0) == 2.0
    for count, low, high in ((0, 0.0, 2.996), (1, 0.0513, 4.744), (5, 1.970, 10.513), (50, 38.96, 63.29)):
        assert limits(count) == (pytest.approx(low, rel=1e-3), pytest.approx(high, rel=1e-3))


@pytest.mark.parametrize("seconds, words", [
    (0, "0 s"), (2e-7, "0.20 µs"), (12e-6, "12 µs"), (0.0352, "35 ms"), (0.9996, "1.0 s"), (9.96, "10 s"),
    (59.4, "59 s"), (59.6, "1 min 00 s"), (3599.6, "1 h 00 min"), (90061, "1 d 1 h"),
])  # fmt: skip
def test_durations_are_as_people_say_them(seconds: float, words: str) -> None:
    assert precise(seconds) == words
