"""Who is at work in a directory: the lock of a root, and the name of its holder."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from safepoint.disk import handles, kernel
from safepoint.disk.disk import NO_LOCKS
from safepoint.disk.files import exists, write
from safepoint.disk.signals import interrupted, look
from safepoint.errors import LockedError, RefusedFileError
from safepoint.root import Root
from safepoint.sealed import read_note

logger = logging.getLogger("safepoint")


PATIENCE, SAID_AFTER, NAP = 10.0, 1.0, 0.05  # seconds, see Waiting
# A helper that is in an fsync ends with that, not with its program. A shell waits as long for one who saves by itself.
FLUSHES = 300.0
MOST = 5  # files or descriptors that one message names


class Owner(NamedTuple):
    """What owner.json holds."""

    host: str
    pid: int
    since: float  # seconds since the epoch
    command: str
    kernel: str = ""  # which boot of which host; of an older library nothing is known of these two
    began: int = 0  # when the process began, in ticks of that kernel
    helper: int = 0  # the process that holds the lock for this one; 0: it does so itself


class Speaker(NamedTuple):
    """In whose name this process takes locks."""

    pid: int
    command: str
    helper: int = 0  # this process, if that is another one


_speaker: Speaker | None = None


def speak_for(pid: int, command: str) -> None:
    """This process is the helper of another one, whose run it is."""
    global _speaker
    _speaker = Speaker(pid, command, os.getpid())


def _myself() -> Speaker:
    return _speaker or Speaker(os.getpid(), " ".join(sys.argv))


class Waiting:
    """For what a dead run has left behind, which may be dying still: some seconds in all, for a helper some minutes.
    Who reads the log knows.

    Ctrl-C ends the waiting, with several ranks by the refusal of all.
    """

    def __init__(self) -> None:
        self._begin = 0.0
        self._said: set[str] = set()

    def goes_on(self, what: Callable[[], str], helper: bool = False) -> bool:
        """Whether to look again: after a moment, or not any more."""
        patience = FLUSHES if helper else PATIENCE
        self._begin = self._begin or time.monotonic()
        waited = time.monotonic() - self._begin
        if waited >= SAID_AFTER and "" not in self._said:
            self._said.add("")
            self.say(f"waiting up to {patience:.0f} s for {what()}")
        look()
        if waited >= patience or interrupted():
            return False
        time.sleep(NAP)
        return True

    def say(self, text: str) -> None:
        """Once, however many ranks one process looks at."""
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)


def claim(root: Root, waiting: Waiting, hint: str = "") -> Callable[[], object]:
    """Take the lock of a root and say so to others; what gives it back. Raises `LockedError`, which names the holder;
    then nothing was changed.

    A holder that is at work, or of which nothing can be known here, is met at once. One whose process has ended is
    waited for, as a child that has its descriptor may not have ended yet; and so is one that has not said its name.
    """
    with contextlib.ExitStack() as on_error:
        try:
            while (release := root.disk.lock(root.lock)) is None:
                who = read_owner(root)
                if _may_be_at_work(who) or not waiting.goes_on(lambda who=who: _holder(root, who), _flushes(who)):  # type: ignore[misc]
                    text = f"{root.work} is in use by another run: {_holder(root, who)}"
                    raise LockedError(f"{text}; nothing was changed{hint}")
            on_error.callback(_give_back, root, release)
            info = root.disk.stat(root.lock)
            root.locked = info.st_dev, info.st_ino
            root.descriptor = kernel.descriptor_of(root.locked)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            waiting.say(f"no kernel locks in {root.work}: a second run at the same time would not be noticed")
        on_error.callback(_unsay, root, _say_owner(root))
        return on_error.pop_all().close


def _give_back(root: Root, release: Callable[[], object]) -> None:
    """What the session was to do is done by now: that must not end in an error."""
    try:
        release()
    except OSError as error:
        logger.warning("the lock was not given back (%s): it goes with this process", root.said(error))


def _say_owner(root: Root) -> dict[str, Any]:
    """At once when the lock is taken: what is there names the run before."""
    if exists(root.disk, root.owner):
        root.disk.remove(root.owner)
    pid, command, helper = _myself()
    owner = {
        "host": kernel.host(), "pid": pid, "since": time.time(), "command": command,
        "kernel": kernel.namespace(), "began": kernel.began(pid) or 0, "helper": helper,
    }  # fmt: skip
    write(root.disk, root.owner, json.dumps(owner).encode())
    return owner


def _unsay(root: Root, owner: dict[str, Any]) -> None:
    """Before the lock is given back: the next who takes it must not be met under this name. Unless there is another
    one, of a run in a side directory that took the place of ours."""
    with contextlib.suppress(OSError):
        if read_owner(root) == owner:
            root.disk.remove(root.owner)


def refuse_held(root: Root, what: str, touched: Iterable[tuple[str, os.stat_result, int | None]]) -> None:
    """Raise `RefusedFileError` if this process, or one that it comes from or that comes from it, has one of these files
    in a way that cannot go on when they are replaced, or cut to a length. Of what only reads, and of other processes,
    there is a warning. Nothing was changed."""
    held: dict[kernel.Which, list[handles.Handle]] = {}
    device = root.locked[0] if root.locked else root.disk.stat(root.work).st_dev  # W is on one file system
    for handle in root.disk.handles_into(root.work, device, root.side):
        held.setdefault(handle.which, []).append(handle)
    wrong, doubtful = list[str](), list[str]()
    for path, info, length in touched if held else ():
        for handle in held.get((info.st_dev, info.st_ino), ()):
            if harm := handles.harm(handle, length):
                certain = handle.writes and handles.is_related(handle.pid, _speaker and _speaker.pid)
                text = f"{path} is held by {handle.who}, and is {_fate(length)}: {harm}"
                (wrong if certain else doubtful).append(text)
    if doubtful and not wrong:
        logger.warning("%s", _some(doubtful))
    if wrong:
        raise RefusedFileError(
            f"{what}: {_some(wrong)}. Open it after restore, or close it before; a file that only ever grows may be "
            f"open all the time if it is listed as append and opened with O_APPEND (in Python mode 'a'). No file was "
            f"changed"
        )


def _some(texts: list[str]) -> str:
    return "; ".join(texts[:MOST]) + f"; and {len(texts) - MOST} more" * (len(texts) > MOST)


def _fate(length: int | None) -> str:
    return "to be replaced or moved away" if length is None else f"to be cut to {length} bytes"


def read_owner(root: Root) -> dict[str, Any] | None:
    """Who said last that the root is theirs, as in `Owner`. It may have been killed since: only the lock tells."""
    return read_note(root.disk, root.owner, Owner)


def _may_be_at_work(who: dict[str, Any] | None) -> bool:
    """Whether the process of this name may live, as far as can be seen from here; not if there is no name."""
    if who is None:
        return False
    if who["host"] != kernel.host() or who["kernel"] not in ("", kernel.namespace()):
        return True
    if who["helper"] and who["pid"] == _myself().pid:  # another helper's program is this one's now
        return False
    began = kernel.began(who["pid"])
    return began is not None and (began == who["began"] or 0 in (began, who["began"]))


def _flushes(who: dict[str, Any] | None) -> bool:
    """Whether it is the helper of a program that has ended which is still there."""
    return bool(who and who["helper"] and kernel.can_be_signalled(who["helper"]))  # while it exits, too


def _holder(root: Root, who: dict[str, Any] | None) -> str:
    if who and _may_be_at_work(who):
        mine = (who["host"], who["pid"]) == (kernel.host(), _myself().pid)
        command = "this very process, by an earlier init: go on with that session, or call safepoint.close() first"
        return describe_owner({**who, "command": command} if mine else who)
    left = ", ".join(handles.holders(root.lock)) or "what cannot be seen from here"
    if who is None:
        return f"{describe_owner(who)}; its lock is held by {left}"
    return f"{describe_owner(who)}, which is gone, but what it had started is not: {left}"


def describe_owner(who: dict[str, Any] | None) -> str:
    if who is None:
        return "it has not yet said which"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
    return f"process {who['pid']} on {who['host']}, since {since} ({who['command']})"
