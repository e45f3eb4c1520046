"""Ranks on another node than the launcher of `safepoint check`: each node has a directory of its own for its ranks, and
a process that follows them (`check.node`), which the first of them starts.

(1) The launcher has put into the environment all that a rank needs to know: no rank asks anybody, or waits for an
    answer. Only at its very end a rank waits a moment, until its last notes have been read: a scheduler may end all
    processes of a step, the follower too, with the last of its ranks.
(2) The directory is renamed into place with its watch list: who finds it can begin. Nobody else may look into it.
(3) The follower is a child of nobody here: a program may wait for any child that it has. `elsewhere.c` does the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safepoint.trace import record

NODES = "SAFEPOINT_TRACE_NODES"  # a name in the environment
# Files: while there is a follower, with its number when it has begun; of each rank, when its last note was read.
FOLLOWING, SENT = "following", ".sent"
SECOND = "second"  # a file: more than one program of the command has called MPI, and one is noted
WAITS_S, STEP_S = 5.0, 0.01
SHELL = '"$@" &'  # the follower is left to the process that takes all orphans


def identity() -> str:
    """Of this host, and of where its processes have their numbers: a boot, and a namespace."""
    boot, space = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    with contextlib.suppress(OSError):
        space = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    return f"{boot}-{space}"


def told(run: str, watch: dict[str, Any], command: Sequence[str]) -> str:
    """What is put into the environment: a line each for where the launcher is, the name of the run, the watch list, and
    each word of the command that follows; no command: nobody listens for other nodes."""
    return "\n".join((identity(), run, json.dumps(watch, separators=(",", ":")), *command))


def place(where: Path) -> Path:
    """Where this process notes: there, or on another node in a directory that is this node's. Raises OSError."""
    text = os.environ.get(NODES, "")
    if not text:
        return where
    launcher, run, watch, *command = text.split("\n")
    mine = identity()
    if mine == launcher and (where / record.WATCH).exists():
        return where
    if not command:
        if not (where / record.WATCH).exists():
            record.say(
                f"{platform.node()} is not the node of safepoint check, which follows no other: give it --port 0"
            )
        return where
    found = Path(os.environ.get("TMPDIR") or "/tmp", f"safepoint-check-{run}-{mine}")
    if not found.exists() and _is_made(found, watch):
        _start(found, command)
    info = os.lstat(found)
    if info.st_uid != os.geteuid() or not os.path.isdir(found) or os.path.islink(found) or info.st_mode & 0o077:
        raise PermissionError(f"{found} is another user's")
    return found


def _is_made(found: Path, watch: str) -> bool:
    """Whether it was this process that has made it. Raises OSError."""
    new = Path(tempfile.mkdtemp(prefix=f"{found.name}.", dir=found.parent))
    try:
        (new / record.WATCH).write_text(watch, "utf-8")
        (new / FOLLOWING).touch()
        os.rename(new, found)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not found.exists():
            raise
        return False
    return True


def _start(found: Path, command: Sequence[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(
        ["/bin/sh", "-c", SHELL, "sh", *command, str(found)], env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def ended(where: Path, rank: int) -> None:
    """There are no more notes of this rank: wait until they have been read, if there is somebody who does."""
    sent, end = where / f"rank-{rank:05d}{SENT}", time.monotonic() + WAITS_S
    while _is_followed(where) and not sent.exists() and time.monotonic() < end:
        time.sleep(STEP_S)


def second(where: Path) -> None:
    """Another process has noted as this rank, in check mode: say so to whoever reads the trace."""
    if (where / record.WATCH).exists():
        with contextlib.suppress(OSError):
            (where / SECOND).touch()


def _is_followed(where: Path) -> bool:
    """Or will be."""
    try:
        pid = (where / FOLLOWING).read_text("ascii")
    except OSError:
        return False
    return not pid or os.path.exists(f"/proc/{pid}")
