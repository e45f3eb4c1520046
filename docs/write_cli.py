"""Writes docs/cli.md from the commands themselves: `python docs/write_cli.py > docs/cli.md`.

All that it shows was run, on an example that it makes; only times and paths are replaced, by ones that stay the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from safepoint import errors
from safepoint.cli.group import COMMANDS, INTERRUPTED, SYSTEM, program
from safepoint.disk import Disk
from safepoint.disk.files import read
from safepoint.manifest import load
from safepoint.pace.stopping import HALTED, REQUEUE
from safepoint.record import Life, Record, Taken, dump, parse_record, parse_taken
from safepoint.retention import Keep
from safepoint.root import Root
from safepoint.saving import commit, find, prune, take
from safepoint.saving.memory import Memory, Options
from safepoint.sealed import FORMAT

ELSEWHERE = (
    "run",
    "report",
    "build-c",
    "config",
    "crash-test",
    "compare",
    "trace",
    "places",
    "check",
    "drain",
    "fetch",
    "threads",
    "tasks",
    "deps",
    "bench-net",
)  # commands with pages of their own
COLUMNS, WIDE = 80, 140
SHOWN_FIRST = ("status", "why", "verify")
SHOWN = "/scratch/flow"  # instead of the example's real directory
DISK = Disk()

INTRO = """\
# The command line

This page is made by `python docs/write_cli.py`; a test checks that it is up to date.

`pip install '.[cli]'`, in the directory of safepoint's source, brings the command `safepoint`; `python -m safepoint` is
the same. It looks at what a directory keeps, and acts on it by hand. What only looks takes no lock: it may be used
while a run is at work, and on a copy that was brought elsewhere. What changes something takes the locks of all ranks,
and refuses if a run has one.

With several ranks a set counts as a restart would count it, one that coordinates and has as many ranks as the newest
set. (Of a run with `coordinate=False` each rank restores its own newest set: the table shows which ranks have it.)

In a pipe lines are not cut to the width of a terminal; `COLUMNS` sets a width. `--json` prints one JSON object, and
nothing else, on stdout; the exit code is the same as without. Where a command fails, stdout is empty, and the reason on
stderr.

`status` and `why` foretell how a restart would fail: that error is on stderr, and its code is the exit code. They
show on stdout what is here all the same, if a set is, the mark of a finished run, or a run at work; else stdout is
empty. With `--json` the object always comes, and its `error` has code and text. The answer of `verify`, `diff` and
`compare` is on stdout too when the exit code says that something is damaged, or differs.
"""

ABSOLUTE = "absolute path"
KEYS = {
    "status": {
        "directory": ABSOLUTE,
        "manifest": "its path, or null",
        "running": "true, false, or null: cannot be seen from here",
        "owner": "who is at work, or was when it was killed: host, pid, since, command, kernel, began, helper",
        "finished": "null, or step, time, number",
        "halt": "null, or what was asked for with `safepoint halt` and is not yet heeded",
        "hidden": "null, or, if newer sets took the place of others, hidden and stored: the sets of this life",
        "due": "null, or set and text: why it was time for the newest set",
        "restart": "set, step (null: none) and text: what a restart would take",
        "in_memory": "whether a power cut empties the file system: then sets survive kills alone",
        "remote": "the other places: place, seen (seconds since the epoch), trouble (what hinders a drain)",
        "sets": "newest first: number, step, extra, time, state, places (where else it was whole), files, size, "
        "stored, ranks (needed, committed), reasons",
        "leftovers": "path, what, size of each",
        "foreign": "names below the side directory that are not of safepoint",
        "error": "null, or code and text: what stands in the way of a restart",
    },
    "verify": {
        "directory": ABSOLUTE,
        "sets": "number, step, and of each of its ranks: rank, state (ok, damaged, uncommitted, gone, missing), reason",
        "damaged": "numbers of the damaged sets",
    },
    "show": {
        "directory": ABSOLUTE,
        "number": "of the set",
        "step": "or null",
        "time": "when it was taken, seconds since the epoch",
        "state": "as in status",
        "extra": "what the program gave along with the set, an object",
        "files": "path, rank, kind, size, stored, kept, mode, modified, checksum, target of each",
    },
    "top": {
        "directory": ABSOLUTE,
        "running": "true or false",
        "restart": "what a restart would take, in a few words",
        "kill_safe": "set, step and time of the newest set that survives a kill; null: none",
        "durable": "the same of the newest that survives a power cut",
        "hidden": "null, or hidden and stored: the sets of this life, and how many of them were stored",
        "failed": "sets of this life that could not be stored",
        "interval": "seconds between two sets that were stored, the median; null: there were no two",
        "blocked": "the share of the time that hide took; null: not known",
        "stored": "bytes that the sets take",
    },
    "why": {
        "directory": ABSOLUTE,
        "outcome": "restored, finished, first start, initial files, on nodes, or error",
        "text": "the same in a sentence",
        "set": "its number, or null",
        "step": "or null",
        "passed_over": "set, step, reason of each newer one",
        "files": "path, rank, action (replaced, put back, cut back, untouched, discarded), text of each",
        "error": "null, or code and text",
    },
    "restore": {
        "directory": ABSOLUTE,
        "outcome": "restored, extracted or finished",
        "to": "where it was extracted, or null",
        "set": "its number, or null",
        "step": "or null",
        "files": "paths",
        "discarded": "paths of what was moved out of the way",
    },
    "drop": {
        "directory": ABSOLUTE,
        "removed": "the number",
        "freed": "bytes",
        "restart": "the set that a restart takes now, or null",
    },
    "diff": {
        "directory": ABSOLUTE,
        "a": "as given",
        "b": "as given",
        "equal": "whether all is",
        "files": "path, state, text, kind, values, differing, largest, relative, where, offset of each",
    },
    "log": {"directory": ABSOLUTE, "events": "each with time, event, rank, and what else it says"},
    "clean": {
        "directory": ABSOLUTE,
        "dry_run": "whether nothing was removed",
        "removed": "path, what, size of each",
        "freed": "bytes",
    },
    "hide": {"number": "of the set; null: there was nothing to hide", "step": "as given", "files": "paths"},
    "halt": {
        "directory": ABSOLUTE,
        "undone": "whether the request was taken back",
        "until": "null, or the moment, seconds since the epoch",
        "steps": "null, or how many",
    },
    "finish": {"finished": "true", "step": "as given"},
    "init": {"path": "of the manifest, or null", "text": "what was proposed", "proposals": "how many lines"},
}


def make(work: str, ranks: int, sets: int, *, size: int = 1000) -> None:
    """A directory as a program of so many ranks leaves it, with files of each rank and of the saver."""
    Path(work, ".safepoint").write_text("u-{rank}.npy\nfields/v-{rank}.vtk compress\nhistory.csv append\n", "utf-8")
    Path(work, "fields").mkdir()
    side = Path(Root(work).side)
    side.mkdir()
    (side / "FORMAT").write_text(f"safepoint {FORMAT}\n")
    for rank in range(ranks):
        os.mkdir(Root(work, rank, ranks).path)
    previous: dict[int, Record] = {}
    for number in range(1, sets + 1):
        with open(os.path.join(work, "history.csv"), "a", encoding="utf-8") as file:
            file.write(f"{number * 100}, {1 / number:.6f}\n")
        for rank in range(ranks):
            root, last = Root(work, rank, ranks), previous.get(rank)
            taken = taken_by(work, rank, ranks, number, last, size)
            previous[rank] = commit.secure(root, taken, last, Memory(Options("1")))
            prune.prune(root, previous[rank], Keep(sets), 0)


def taken_by(work: str, rank: int, ranks: int, number: int, previous: Record | None, size: int = 1000) -> Taken:
    """What one rank does of a save point before it is stored."""
    Path(work, f"u-{rank}.npy").write_bytes(bytes((rank + number + k) % 256 for k in range(256)) * (size // 256 + 1))
    Path(work, f"fields/v-{rank}.vtk").write_text(f"field {number}\n" * size, "utf-8")
    root = Root(work, rank, ranks)
    mine = load(work).owned_by(rank, ranks, 0)
    items = find.find(root, mine).items
    where = DISK.page_cache(root.path), Life(1, "2f6a91c04d8e37b5")
    return take.take(root, mine, items, number, number * 100, *where, previous, prune.Sets())


def example(work: str) -> None:
    """Four ranks: three sets; the newest is lacking on the rank whose node went down, and there is a torn new file."""
    make(work, 4, 2)
    for rank in range(4):
        root = Root(work, rank, 4)
        taken = taken_by(work, rank, 4, 3, parse_record(read(DISK, root.record(2))))
        if rank != 2:
            commit.secure(root, taken, None, Memory(Options("1")))
        else:
            Path(root.taken(3)).write_bytes(dump(taken._replace(boot="before")))
    Path(work, "u-0.npy").write_bytes(b"torn")
    with open(os.path.join(work, "history.csv"), "a", encoding="utf-8") as file:
        file.write("300, 0.333333\n")
    for rank in range(4):
        for number in (1, 2, 3):
            _set_back(Root(work, rank, 4), number, (4.5 - number) * 86400 + 1800)  # it says the same for half an hour


def _set_back(root: Root, number: int, seconds: float) -> None:
    """Let a set be so old."""
    for path, parse in ((root.record(number), parse_record), (root.taken(number), parse_taken)):
        if os.path.exists(path):
            what = parse(Path(path).read_bytes())
            Path(path).write_bytes(dump(what._replace(time=time.time() - seconds)))


def captured(work: str, *arguments: str, columns: int = COLUMNS) -> str:
    """What a command prints in a terminal so wide, with times and paths that stay the same."""
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "safepoint", *arguments, work], capture_output=True, text=True, env=environment,
        encoding="utf-8", stdin=subprocess.DEVNULL,
    )  # fmt: skip
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-01-31 12:00:00", done.stdout + done.stderr)
    text = re.sub("(?m)^safe from .*\n", "", text)  # where the example is in memory
    return f"$ safepoint {' '.join(arguments)}\n{text.replace(os.path.realpath(work), SHOWN)}"


def page() -> str:
    """The text of docs/cli.md."""
    parts = [INTRO]
    with tempfile.TemporaryDirectory() as top:
        work = os.path.join(os.path.realpath(top), "flow")
        os.mkdir(work)
        example(work)
        parts += [f"```\n{captured(work, name)}```\n" for name in SHOWN_FIRST]
        parts.append(f"In a terminal of {WIDE} columns:\n")
        parts += [f"```\n{captured(work, name, columns=WIDE)}```\n" for name in SHOWN_FIRST]
    parts.append("## Commands\n")
    context = click.Context(program, info_name="safepoint", terminal_width=COLUMNS, **program.context_settings)
    for name in COMMANDS:
        if name in ELSEWHERE:
            parts.append(f"### safepoint {name}\n\n{COMMANDS[name]} See `safepoint {name} --help`.\n")
            continue
        command = program.get_command(context, name)
        assert command
        inner = click.Context(command, info_name=name, parent=context, terminal_width=COLUMNS)
        parts.append(f"### safepoint {name}\n\n```\n{command.get_help(inner)}\n```\n")
        rows = "".join(f"| `{key}` | {text} |\n" for key, text in KEYS[name].items())
        parts.append(f"| key of `--json` | |\n|---|---|\n{rows}")
    parts += [_codes(), _completion()]
    return "\n".join(parts)


def codes() -> dict[int, tuple[str, str]]:
    """Every exit code with its name and meaning; those of the library are in errors.py."""
    found = {
        REQUEUE: ("", "`run`, and `stop()`: stopped before its end, by a time limit or a signal; start it again"),
        HALTED: ("", "`run`, and `stop()`: stopped by `safepoint halt`"),
        0: ("", "done; of `status`: a restart would find what it needs; of `why`: none fails; of `diff`: all is equal"),
        1: (
            "",
            "`diff`, `threads`: something differs; `places`: no legal place; `check`: a mistake, or a hang; packages "
            "of the command line are missing",
        ),
        2: (
            "",
            "the command was called wrongly: click's usage error (of `threads`: 10); "
            "`places`, `check`, `threads`: it cannot be told",
        ),
        INTERRUPTED: ("", "interrupted (Ctrl-C)"),
    }
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.SafepointError) and kind is not errors.SafepointError:
            meaning = " ".join((kind.__doc__ or "").split())
            system = " Or any other error of the system, such as a denied permission." if kind.code == SYSTEM else ""
            found[kind.code] = (name, meaning + system)
    return dict(sorted(found.items()))


def _codes() -> str:
    rows = "".join(f"| {code} | {f'`{name}`' if name else ''} | {text} |\n" for code, (name, text) in codes().items())
    return f"## Exit codes\n\nThose from 10 on are the `code` of the library's exceptions and never change.\n\n" \
           f"| code | exception | meaning |\n|---|---|---|\n{rows}"  # fmt: skip


def _completion() -> str:
    return """\
## Completion

| shell | line | in |
|---|---|---|
| bash | `eval "$(_SAFEPOINT_COMPLETE=bash_source safepoint)"` | `~/.bashrc` |
| zsh | `eval "$(_SAFEPOINT_COMPLETE=zsh_source safepoint)"` | `~/.zshrc` |
| fish | `_SAFEPOINT_COMPLETE=fish_source safepoint \\| source` | `~/.config/fish/completions/safepoint.fish` |
"""


if __name__ == "__main__":
    sys.stdout.write(page())
