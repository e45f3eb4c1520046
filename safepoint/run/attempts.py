"""How often in a row the command has failed at once after one set: then that set is put aside.

A set may be whole and yet be one from which the program cannot go on. Without this it would be given back for ever.
"""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple

from safepoint.disk.files import exists, write
from safepoint.errors import SaveError
from safepoint.root import Root
from safepoint.run.speech import say
from safepoint.saving import back
from safepoint.sealed import read_note

IN_A_ROW = 3  # failures at once after which a set is put aside


class Tries(NamedTuple):
    """What attempts.json holds."""

    set: int
    times: int


class Attempts:
    """How often in a row the command has failed at once after this set; kept, as each try may be a job of its own."""

    def __init__(self, root: Root) -> None:
        self._disk, self._path = root.disk, root.attempts
        self.set = self.times = 0
        if noted := read_note(self._disk, self._path, Tries):
            self.set, self.times = noted["set"], noted["times"]

    def note(self, number: int, *, failed_at_once: bool) -> None:
        times = (self.times if number == self.set else 0) + 1 if failed_at_once else 0
        if (number, times) != (self.set, self.times):
            self.set, self.times = number, times
            with contextlib.suppress(OSError):  # for comfort only: without it one more try is made
                if exists(self._disk, self._path):
                    self._disk.remove(self._path)
                write(self._disk, self._path, json.dumps({"set": number, "times": times}).encode())


def put_bad_set_aside(root: Root) -> None:
    """The set from which the command has failed at once too often; none, if there is no older one."""
    attempts = Attempts(root)
    if attempts.times < IN_A_ROW or not exists(root.disk, root.record(attempts.set)):
        return
    numbers = root.numbers("set")
    older = [n for n in numbers if n < attempts.set and exists(root.disk, root.record(n))]
    if not older:
        say(f"from set {attempts.set} the command has failed at once {attempts.times} times; there is no older one")
        return
    with root.reporting(SaveError, f"set {attempts.set} cannot be put aside", "nothing was changed"):
        back.fail(root, attempts.set)
        # The name before the command starts from the older set: else a power cut would bring back the bad one.
        root.disk.sync_dir(root.path)
    say(
        f"from set {attempts.set} the command has failed at once {attempts.times} times in a row: it is put aside, "
        f"as {root.shown(root.state('failed', attempts.set))}, and the one before is taken"
    )
    attempts.note(attempts.set, failed_at_once=False)
