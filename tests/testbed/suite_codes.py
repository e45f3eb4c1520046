"""The public suites of MPI mistakes: which codes there are, what is wrong with each, where, and which templates fit.

Nothing of them is in this repository. They are read from the directory that `SUITES` names, or from `../shared/suites`
beside the checkout: `mbi/` (MPI Bugs Initiative), whose codes say in their heads what is wrong with them, and
`corrbench/` (MPI-CorrBench), whose codes say it by their names and directories.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import NamedTuple

from safepoint.trace.signatures import signatures
from testbed.paths import HOUSE

CORRECT = "correct"
MBI, CORRBENCH = "MBI", "CorrBench"
DEADLOCK = "deadlock"
BUFFERS, SYNCHRONOUS = "BufferingHazard", "BufferingHazard with --sync-sends"
COLLECTIVE = "collective-order", "collective-not-by-all"
MESSAGE = "send-without-receive", "receive-without-send", "send-to-itself-without-receive", DEADLOCK
EPOCHS = (
    "rma-outside-epoch", "rma-not-completed", "epoch-not-closed", "epoch-not-closed-all", "epoch-not-completed",
    "exposure-not-ended", "fence-not-by-all",
)  # fmt: skip
TYPES = "collective-type-differs", "vector-type-differs", "message-type-differs"
TAGS = "negative-tag", "negative-tag-received", "large-tag"

# What fits a label of a suite, and what is to be reached. `error-returned` alone fits only what no template is for.
FITTING = {
    MBI: {
        "CallMatching": (*COLLECTIVE, *MESSAGE),
        "IHCallMatching": (*COLLECTIVE, *MESSAGE),
        "CommunicatorMatching": (*COLLECTIVE, *MESSAGE),
        "TagMatching": MESSAGE,
        "RootMatching": ("root-differs",),
        "OperatorMatching": ("op-differs",),
        "DatatypeMatching": TYPES,
        "CommunicatorLeak": ("comm-not-freed",),
        "TypeLeak": ("type-not-freed",),
        "GroupLeak": ("group-not-freed",),
        "OperatorLeak": ("op-not-freed",),
        "RequestLeak": ("persistent-not-freed", "request-not-completed"),
        "MissingStart": ("persistent-not-started",),
        "MissingWait": ("request-not-completed", "request-reused", "active-request-freed"),
        "InvalidCommunicator": ("null-comm",),
        "InvalidTag": TAGS,
        "InvalidOperator": ("null-op",),
        # A source of -1 is MPI_PROC_NULL to MPICH: what happens then is that nobody receives a message.
        "InvalidSrcDest": ("bad-rank", "negative-rank", *MESSAGE),
        "InvalidRoot": ("bad-root", "negative-root"),
        "InvalidDatatype": ("null-datatype", "type-not-committed"),
        "InvalidBuffer": ("error-returned",),
        "InvalidOtherArg": ("error-returned",),
        "DoubleEpoch": ("lock-twice", "lock-all-twice", "lock-in-lock-all", "lock-all-in-lock", "lock-between-fences",
                        "fence-in-lock", "fence-not-by-all"),
        "MissingEpoch": EPOCHS,
        "MessageRace": ("any-source",),
        "BufferingHazard": ("both-send-first", "both-wait-first", *MESSAGE),
        SYNCHRONOUS: (DEADLOCK,),
        "LocalConcurrency": (),
        "GlobalConcurrency": (),
    },
    CORRBENCH: {
        "ArgMismatch Tag": MESSAGE,
        "ArgMismatch Communicator": (*COLLECTIVE, *MESSAGE),
        "ArgMismatch Type": TYPES,
        "ArgMismatch Op": ("op-differs",),
        "ArgMismatch Root": ("root-differs",),
        "ArgMismatch Count": ("truncation", "error-returned"),
        "ArgError Rank": ("bad-rank", "negative-rank"),
        "ArgError Root": ("bad-root", "negative-root"),
        "ArgError Tag": TAGS,
        "ArgError Communicator": ("null-comm", *MESSAGE, *COLLECTIVE),
        "ArgError Type": ("null-datatype", "type-not-committed", *TYPES, "truncation"),
        "ArgError Op": ("null-op", "error-returned"),
        "ArgError Count": ("negative-count", "truncation", "error-returned"),
        "ArgError other": ("error-returned",),
        "MissingCall": (*COLLECTIVE, *MESSAGE, "request-not-completed", "request-reused", "type-not-committed",
                        "not-finalized", *EPOCHS),
        "MisplacedCall": (*COLLECTIVE, *MESSAGE, "both-send-first", "both-wait-first", "type-not-committed", *EPOCHS),
        "threads": (*COLLECTIVE, *MESSAGE, "comm-not-freed", "not-finalized", "call-after-finalize"),
    },
}  # fmt: skip
ALL, NONE = "all that occur", "none: memory accesses are not calls"
GOALS = {
    **dict.fromkeys((f"{MBI} {label}" for label in FITTING[MBI]), ALL),
    **dict.fromkeys((f"{CORRBENCH} {label}" for label in FITTING[CORRBENCH]), ""),
    **dict.fromkeys((f"{MBI} LocalConcurrency", f"{MBI} GlobalConcurrency"), NONE),
    f"{MBI} DoubleEpoch": "8 of 9",
    f"{MBI} MissingEpoch": "8 of 9",
    f"{MBI} MessageRace": "as a note",
    f"{MBI} BufferingHazard": "cycles of 2",
    f"{MBI} InvalidBuffer": "what MPI refuses",
    f"{MBI} InvalidOtherArg": "what MPI refuses",
    f"{MBI} IHCallMatching": "only with that input",
    f"{CORRBENCH} ArgMismatch Tag": ALL,
    f"{CORRBENCH} ArgError Rank": ALL,
}
# Of the words in a name of CorrBench after its function.
WORDS = {
    "rank": "Rank", "root": "Root", "dest": "Root", "tag": "Tag", "communicator": "Communicator", "type": "Type",
    "newtype": "other", "oldtype": "Type", "recvtype": "Type", "datatype": "Type", "op": "Op", "count": "Count",
    "sendcount": "Count", "blocklengths": "Count",
}  # fmt: skip
IN_HEAD = re.compile(r"BEGIN_MBI_TESTS\n(.*?)END_MBI_TESTS", re.S)
ONE_TEST = re.compile(r"^ *\$ mpirun -np (\d+)((?: +\$\w+)*) +\$\{EXE\}(.*)\n *\| *(OK|ERROR: *\w+)", re.M)
A_CALL, COMMENT = re.compile(r"\bMPI_[A-Z][a-z]\w*\("), re.compile(r"/\*.*?\*/|//.*")
NAMED_LINE = re.compile(r"(?:\.c:|\bline )(\d+)")


class Run(NamedTuple):
    """A code with the arguments with which it is started, and what should be found then."""

    suite: str
    path: Path
    label: str  # of the mistake; CORRECT
    ranks: int
    arguments: tuple[str, ...] = ()
    lines: frozenset[int] = frozenset()  # where the mistake is; empty: the suite does not say
    functions: frozenset[str] = frozenset()  # which one it is in; empty: the suite does not say
    options: tuple[str, ...] = ()  # of the command

    @property
    def name(self) -> str:
        return " ".join((self.path.stem, *self.arguments, *self.options))

    @property
    def fitting(self) -> tuple[str, ...]:
        return FITTING[self.suite].get(self.label, ())


def directory() -> Path | None:
    """Where the suites are; None: not here."""
    found = Path(os.environ.get("SUITES") or HOUSE.parent / "shared" / "suites")
    return found if (found / "mbi").is_dir() or (found / "corrbench").is_dir() else None


def headers(suites: Path) -> list[Path]:
    """Directories that have headers of the suites."""
    return sorted({path.parent for path in suites.rglob("*.h")})


def of_mbi(path: Path) -> list[Run]:
    """As its head says. A line that is marked or named counts if a call stands there: some are of calls that are
    missing, or of the branch that has none. (A marked line of a code that is correct means nothing.)"""
    text = path.read_text("utf-8", "replace")
    head = IN_HEAD.search(text)
    if head is None:
        return []
    lines = list(enumerate(text.splitlines(), 1))
    marked = {number for number, line in lines if "MBIERROR" in line} | set(map(int, NAMED_LINE.findall(head[1])))
    calls = {number for number, line in lines if A_CALL.search(COMMENT.sub("", line))}
    runs = []
    for ranks, _, arguments, outcome in ONE_TEST.findall(head[1]):
        label = CORRECT if outcome == "OK" else outcome.removeprefix("ERROR:").strip()
        where = frozenset(marked & calls) if label != CORRECT else frozenset[int]()
        runs.append(Run(MBI, path, label, int(ranks), tuple(arguments.split()), where))
        if label == BUFFERS:
            runs.append(runs[-1]._replace(label=SYNCHRONOUS, options=("--sync-sends",)))
    return list(dict.fromkeys(runs))


def of_corrbench(path: Path) -> list[Run]:
    """As its name and its directory say. The lines in its comments are of an older layout: its function counts."""
    parts = path.parts
    if "correct" in parts:
        return [Run(CORRBENCH, path, CORRECT, 2)]
    kind, _, rest = path.stem.partition("-")
    if kind not in ("ArgError", "ArgMismatch", "MissingCall", "MisplacedCall"):
        return [Run(CORRBENCH, path, "threads", 2)]
    called, *words = rest.split("-")
    short = {name.replace("_", "").lower(): name for name in signatures()}
    function = short.get(called.lower().removeprefix("mpi")) or short.get("win" + called.lower().removeprefix("mpi"))
    label = kind
    if kind.startswith("Arg"):
        word = WORDS.get(words[0].lower(), "other") if words else "other"
        label = f"{kind} {word}" if f"{kind} {word}" in FITTING[CORRBENCH] else "ArgError other"
    there = frozenset([function]) if function and kind.startswith("Arg") else frozenset[str]()
    return [Run(CORRBENCH, path, label, 2, functions=there)]


def runs(suites: Path) -> list[Run]:
    """All, in the order of their paths."""
    found = [run for path in sorted((suites / "mbi").rglob("*.c")) for run in of_mbi(path)]
    return found + [run for path in sorted((suites / "corrbench").rglob("*.c")) for run in of_corrbench(path)]


def sample(all_runs: list[Run], correct: int) -> list[Run]:
    """The same few on each machine: one for each label of MBI for which there is a template, and some correct ones."""
    by_chance = sorted(all_runs, key=lambda run: zlib.crc32(run.name.encode()))
    chosen = {(run.suite, run.label): run for run in reversed(by_chance) if run.suite == MBI and run.fitting}
    right = [run for run in by_chance if run.label == CORRECT][:correct]
    return sorted([*chosen.values(), *right], key=lambda run: (run.path, run.arguments))
