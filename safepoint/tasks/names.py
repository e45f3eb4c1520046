"""Every name below W/.safepoint.d/tasks, and nothing else."""

from __future__ import annotations

import itertools
import os
import re
import time

from safepoint.disk import Disk, kernel

FORMAT, TEXT = "FORMAT", b"tasks 1\n"
DONE, LOOSE, RECORD = "done", "loose", "record.json"
JOURNAL, STAGE, GONE = "journal-", "stage-", "gone-"
KEY = re.compile("[0-9a-f]{32}")
_numbers = itertools.count()


def _mine() -> str:
    """Host and process, as a part of a name."""
    return f"{re.sub('[^A-Za-z0-9.]', '_', kernel.host())}-{os.getpid()}"


def journal() -> str:
    """For a new journal of this process. Processes of two containers may have one host name and number, not the time
    as well; and who makes the file refuses one that is there."""
    return f"{JOURNAL}{_mine()}-{time.time_ns():x}"


def process(name: str) -> tuple[str, int]:
    """Host, as in the name, and process number of the writer of a journal; 0 if the name is another one."""
    parts = name[len(JOURNAL) :].rsplit("-", 2)
    return (parts[0], int(parts[1])) if len(parts) == 3 and parts[1].isdecimal() else ("", 0)


def is_mine(host: str) -> bool:
    return host == _mine().rpartition("-")[0]


def make(disk: Disk, directory: str, kind: str = STAGE) -> str:
    """A new empty directory of this process, which the next driver removes."""
    while True:
        path = f"{directory}/{kind}{_mine()}-{next(_numbers)}"
        try:
            disk.mkdir(path)
            return path
        except FileExistsError:  # of a process that had this number before
            continue
