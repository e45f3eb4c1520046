"""One run of a program that was built here, with its trace in a directory of its own, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from safepoint.errors import UsageError
from safepoint.threads.restarted import SERIAL
from safepoint.threads.shown import Shown
from safepoint.threads.texts import AS_IT_IS, MARK, SITES, TEXTS

THREADS = "4"  # of B, if the environment does not say
TAIL = 5  # lines of what a failed run has said
ALONE = "SP_REGIONS", "SP_AHEAD"  # of a program by itself: which visits are traced, and that a reader is there
RUNTIME = b"SP_STATISTICS"  # is in each program that can record
NOISE = "SP_NOISE", "SP_SEED"  # a serial program has no schedule


class Ran(NamedTuple):
    """`status`: as the system has it, negative for a signal; None: it was ended, as it took too long. `traces`: by
    rank, one without a number if there are no ranks."""

    name: str
    seconds: float
    status: int | None
    traces: dict[str, Path]
    output: Path

    @property
    def good(self) -> bool:
        return self.status == 0

    def ending(self) -> str:
        """How it ended, if not well, with its last words."""
        if self.status is None:
            how = "did not end in time, and was killed"
        elif self.status < 0:
            how = f"was killed by {_signal(-self.status)}"
        else:
            how = f"ended with status {self.status}"
        return f"{self.name} {how}{self._last_words()}"

    def told(self) -> str:
        """What the runtime in the program has said, as of a directory that it cannot make; empty: nothing."""
        lines = self.output.with_suffix(".err").read_text("utf-8", errors="replace").splitlines()
        told = dict.fromkeys(line[found.start() :] for line in lines if (found := re.search(r"\bsafepoint: ", line)))
        return "".join(["; it said", *(f"\n    {line}" for line in list(told)[:TAIL])]) if told else ""

    def _last_words(self) -> str:
        lines = self.output.with_suffix(".err").read_text("utf-8", errors="replace").splitlines()[-TAIL:]
        lines = lines or self.output.read_text("utf-8", errors="replace").splitlines()[-TAIL:]
        return ":\n" + "\n".join(f"    {line}" for line in lines) if lines else ", and said nothing"


def sides(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The commands of A and B. Raises `UsageError` if none of the words is a program that was built here."""
    for at, word in enumerate(command):
        found = word if os.path.dirname(word) else shutil.which(word)
        if found and os.path.isfile(found) and os.path.isfile(f"{found}{SERIAL}"):
            return [*command[:at], f"{found}{SERIAL}", *command[at + 1 :]], list(command)
    raise UsageError(
        f"none of these words is a program with its {SERIAL} beside it: {' '.join(command)}. Make both from the line "
        "that compiles it: safepoint threads build -o heat -- gfortran -O2 -fopenmp heat.f90"
    )


def has_reductions(a: Sequence[str]) -> bool:
    """Whether values of the program are sums whose order is chance, so that digests alone say too little."""
    for word in a:
        with contextlib.suppress(OSError):
            text = Path(f"{word.removesuffix(SERIAL)}{SITES}").read_text("utf-8", errors="replace")
            return '"loose": "reduction"' in text
    return False


def may_round(a: Sequence[str]) -> bool:
    """The same of what is printed. Of calls by hand, of which there is no file, nobody knows whether there are sums of
    threads: there may be."""
    by_hand = not any(Path(f"{word.removesuffix(SERIAL)}{SITES}").exists() for word in a)
    return by_hand or has_reductions(a)


def edges(a: Sequence[str]) -> dict[str, str]:
    """How many iterations from each end of a loop are recorded, if the settings of the build say so."""
    _, note = _note(a)
    return {"SP_EDGES": str(note["edges"])} if note.get("edges") else {}


def warnings(a: Sequence[str]) -> list[str]:
    """What `build` has warned of."""
    _, note = _note(a)
    return [str(text).partition("\n")[0] for text in note.get("warnings", [])]


def unread(a: Sequence[str]) -> str:
    """Why a run may have no trace: sources of which `build` could record nothing; empty: there are none."""
    files = [text for text in warnings(a) if AS_IT_IS in text]
    return "".join(["; `build` has recorded nothing of", *(f"\n  {text}" for text in files)]) if files else ""


def unmade(command: Sequence[str], a: Sequence[str]) -> str:
    """That the program of B has no runtime in it, and that of A has: `make` has linked it anew without FC. Empty: it is
    not so."""
    for word, serial in zip(command, a, strict=True):
        if word != serial and _records(serial) and not _records(word):
            return (f"; {word} was not made by `safepoint threads build`: nothing in it records. Make it anew: remove "
                    'it and its objects (make clean), and make FC="safepoint threads build -- gfortran"')  # fmt: skip
    return ""


def _records(program: str) -> bool:
    with contextlib.suppress(OSError), open(shutil.which(program) or program, "rb") as file:
        return RUNTIME in file.read()
    return False


def left(a: Sequence[str]) -> list[tuple[str, int, str, str]]:
    """File, line and text of each statement that is not recorded, and why; what is in no digest is no statement."""
    _, note = _note(a)
    return [(str(file), int(line), str(text), str(why)) for file, line, text, why in note.get("left", [])
            if " is in no digest" not in why]  # fmt: skip


def undigested(a: Sequence[str]) -> list[str]:
    """What is in no digest, so that pass 1 knows nothing of it, and objects that were linked as they are."""
    _, note = _note(a)
    lines = [f"{file}:{line}: {why}" for file, line, _, why in note.get("left", []) if " is in no digest" in why]
    return lines + [str(text) for text in note.get("linked", [])]


def shown(a: Sequence[str]) -> list[Shown]:
    """The statements that print on the screen, as far as `build` has read them."""
    _, note = _note(a)
    return [Shown(**row) for row in note.get("screen", [])]


def unknown(a: Sequence[str]) -> list[str]:
    """Sources of which nobody knows what they print."""
    _, note = _note(a)
    return [*note.get("unknown", []), *(text.split(":")[0] for text in warnings(a) if "compiled as it is" in text)]


def outdated(a: Sequence[str]) -> str:
    """What to say if a source is newer than the program; empty: none is."""
    path, note = _note(a)
    for source in note.get("sources", []):
        with contextlib.suppress(OSError):
            if os.path.getmtime(source) > os.path.getmtime(path):
                return f"{os.path.relpath(source)} is newer than {path}: build again, to compare what it says now"
    return ""


def _note(a: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The program among these words, and how it was built."""
    for word in a:
        program = word.removesuffix(SERIAL)
        with contextlib.suppress(OSError, ValueError, RecursionError):
            return program, json.loads(Path(f"{program}{TEXTS}", MARK).read_text("utf-8"))
    return "", {}


def run(
    name: str, command: Sequence[str], variables: Mapping[str, str], trace: Path, limit: float | None
) -> Ran:  # fmt: skip
    """To its end. Its output comes beside its trace. Raises `UsageError` if it cannot be started."""
    output = trace.with_name(f"{trace.name}.out")
    for old in _traces(trace).values():
        shutil.rmtree(old)
    environment = {**os.environ, **variables, "SP_DIR": str(trace)}
    begin = time.monotonic()
    with open(output, "wb") as out, open(output.with_suffix(".err"), "wb") as err, _input() as source:
        try:
            child = subprocess.Popen(
                command, env=environment, stdin=source, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            raise UsageError(f"cannot start {command[0]}: {error.strerror}", error.errno) from error
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # all that it has started
            child.wait()
    return Ran(name, time.monotonic() - begin, status, _traces(trace), output)


def threads() -> int:
    """Of B, in the outermost regions."""
    first = os.environ.get("OMP_NUM_THREADS", THREADS).split(",")[0].strip()
    return int(first) if first.isdecimal() else int(THREADS)


def environment(side: str, level: str, **more: str) -> dict[str, str]:
    """What a run of A or B has in its environment. A is serial even where it calls what was compiled with OpenMP.
    What the user's environment says of recording holds only as far as it can be meant for both."""
    own = {name: "" for name in (*ALONE, *(NOISE if side == "A" else ())) if name in os.environ}
    threads = "1" if side == "A" else os.environ.get("OMP_NUM_THREADS", THREADS)
    return {"OMP_NUM_THREADS": threads, **own, "SP_LEVEL": level, **more}


def _traces(trace: Path) -> dict[str, Path]:
    """Of one run: by rank, or the only one."""
    found = {path.name[len(trace.name) :]: path for path in trace.parent.glob(f"{trace.name}*") if path.is_dir()}
    return {end: path for end, path in sorted(found.items()) if not end or end[1:].isdecimal()}


def _input() -> IO[bytes]:
    """Each run reads a file that is given as stdin from its beginning; a pipe can be read once only: they get none."""
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            return open(f"/dev/fd/{sys.stdin.fileno()}", "rb")
    return open(os.devnull, "rb")


def _signal(number: int) -> str:
    with contextlib.suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"signal {number}"
