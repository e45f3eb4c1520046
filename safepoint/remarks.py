"""What a session says to the user in its log, each remark once, however often its cause comes again."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from safepoint.listener import Outcome
from safepoint.opening import Opening
from safepoint.patterns import NAME, SIDE, escaped, quoted
from safepoint.ranks import Ranks, Serial
from safepoint.record import Record, StoredFile, label
from safepoint.saving import find

logger = logging.getLogger("safepoint")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND
NAMED = 5  # entries of files that a program has not written anew
HOW = {"append": 'opened to be added to (with "a")', "copy": "opened to be changed in place"}


class Moved:
    """How the program goes on with the files that `hide` has moved away: does it write them anew, as it must, or does
    it count on what they held? Of what Python opens in this process the interpreter tells (`sys.addaudithook`); of the
    rest `crash-test` does."""

    _hooked = False  # there is no way to take a hook away: one for all sessions
    waiting: ClassVar[dict[str, set[str]]] = {}  # not yet begun again, by the last part of their paths
    begun: ClassVar[dict[str, str]] = {}  # and how the others were

    def __init__(self) -> None:
        self._paths: list[str] = []

    def watch(self, paths: Iterable[str]) -> dict[str, str]:
        """From now on these, until the next call. How those that were watched before were begun: append, or copy, as
        the manifest should have it."""
        before = {path: self.begun.pop(path) for path in self._paths if path in self.begun}
        for path in self._paths:
            self.waiting.get(os.path.basename(path), set()).discard(path)
        self._paths = list(paths)
        for path in self._paths:
            self.waiting.setdefault(os.path.basename(path), set()).add(path)
        if self._paths and not Moved._hooked:
            Moved._hooked = True
            sys.addaudithook(_opened)
        return before


def _opened(event: str, arguments: tuple[Any, ...]) -> None:
    """The hook. What it raised would end what the program is about to do."""
    if event not in ("open", "sqlite3.connect"):
        return
    with contextlib.suppress(Exception):
        flags = arguments[2] if event == "open" else os.O_RDWR | os.O_CREAT
        if flags & WRITES and (waiting := Moved.waiting.get(os.path.basename(path := os.fsdecode(arguments[0])))):
            if path not in waiting and f"/{SIDE}/" not in path:  # else it is ours, by the same name in a set
                path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if path in waiting:  # the first since it was moved
                waiting.remove(path)
                goes_on = flags & os.O_CREAT and not flags & (os.O_TRUNC | os.O_EXCL)
                if flags & os.O_APPEND or goes_on:
                    Moved.begun[path] = "append" if flags & os.O_APPEND else "copy"


class Remarks:
    """Of one session. What all ranks know is said by one of them."""

    def __init__(self, home: Opening, peers: Serial | Ranks) -> None:
        self._home, self._size = home, peers.size
        self._speaks = home.ranks.rank == home.lead or peers.size == 1
        self._said: set[str] = set()
        self._in_vain = 0  # calls of hide in a row that found nothing
        self._moved, self._named = Moved(), NAMED
        self._before: set[str] = set()  # what the set before has taken out of W
        self._whose = home.ranks.rank, home.ranks.size
        self._more = min(NAMED, sum(entry.optional for entry in home.manifest.entries))  # of which nothing was said

    @property
    def listed(self) -> str:
        """The entries of this rank, as messages name them."""
        me, size = self._home.ranks.rank, self._home.ranks.size
        return ", ".join(e.filled(me, size) if e.per_rank else e.text for e in self._home.manifest.entries)

    @property
    def discarded(self) -> str:
        return self._home.root.shown(self._home.root.discarded)

    def say(self, level: int, text: str) -> None:
        """What all ranks know, once."""
        logger.log(level if self._speaks else logging.DEBUG, "%s", text)

    def once(self, key: str) -> bool:
        """Whether this was not yet said; from now on it was."""
        new = key not in self._said
        self._said.add(key)
        return new

    def warn_once(self, texts: Iterable[str]) -> None:
        for text in texts:
            if self.once(text):
                logger.warning("%s", text)

    def found(self, there: find.Found) -> None:
        """Of what `hide` will take."""
        for entry, path in there.opened:
            if self.once(entry.text):  # once for an entry, however many files it means
                logger.warning("%s is still open for writing: saved as a snapshot of what was flushed so far", path)
        for item in there.items:
            new = item.carried and self._more and self.once(f"{item.path} carried")
            listed = self._home.manifest.decides(item.path, *self._whose) if new else None
            if listed and self.once(f"{listed.text} is carried over"):
                self._more -= 1
                logger.warning(
                    "%s was in the last set, and the program has not written it since: the next sets have it as it was "
                    "there, and restore and finish bring it back. To let it stay in place too: %s copy optional",
                    item.path, listed.text,
                )  # fmt: skip
        self._begun_by_adding(there)
        if there.many and self.once(f"{there.many[0].text} means"):
            text, count = there.many[0].text, there.many[1]
            top = os.path.dirname(text)
            instead = f"list {top}/ instead" if top else "write them into a directory, and list that with a slash"
            logger.warning("%s means %d files: one rename moves them all, if you %s", text, count, instead)

    def _begun_by_adding(self, there: find.Found) -> None:
        """What was moved away, and then not written anew: its older contents are in older sets alone, which go."""
        work, manifest = self._home.root.work, self._home.manifest
        moved = {f"{work}/{item.path}": item.path for item in there.items if item.kind == "move" and not item.tree}
        gone = self._before.difference(item.path for item in there.items) if moved else ()
        if gone and (entry := manifest.decides(min(gone), *self._whose)) and self.once(f"{entry.text} of before"):
            logger.warning(
                "%s was in the last set, and is in this one no more, as the program has not written it again: it goes "
                "with its set. If it is to stay list %s as copy", min(gone), entry.text,
            )  # fmt: skip
        self._before = {*moved.values()} or self._before
        begun = [each for each in self._moved.watch(moved).items() if self.once(f"{each[0]} begun")]
        for full, how in begun[: self._named]:
            path = os.path.relpath(full, work)
            entry = manifest.decides(path, *self._whose)
            if entry and self.once(f"{entry.text} begun by adding"):
                self._named -= 1
                logger.warning(
                    "%s was %s after hide had moved it away, so it has begun anew, without what it held: that is in "
                    "older sets alone, and goes with them. List it as: %s %s", path, HOW[how], entry.text, how,
                )  # fmt: skip

    def something(self) -> None:
        self._in_vain = 0

    def nothing(self, committed: Record | None, *, adopted: bool) -> None:
        """Once is a first start. More often it is a manifest that does not name what the program writes: that is said
        ever more loudly, though in few lines, and what did change is named."""
        self._in_vain += 1
        times, home = self._in_vain, self._home
        if (times > 2 and str(times).strip("0") != "1") or not self.once(f"{times} times"):  # 1, 2, 10, 100, …
            return
        loud = (times > 1) + (times > 2) + (committed is not None or adopted)
        row = f", {times} times in a row" if times > 2 else ""
        text = f"nothing to hide{row}: none of these files exists: {self.listed}"
        if loud and home.active and self._speaks:
            since = committed.label if committed else "the start"
            marks = [home.root.taken(committed.number) if committed else home.root.baseline]
            names = find.changed(home.root, home.manifest, [*marks, *[home.root.owner] * (not adopted)])
            if names:
                text += f"; changed since {since}: {names}: list in {NAME} what is to be saved"
        self.say((logging.INFO, logging.WARNING, logging.ERROR)[min(2, loud)], text)

    def restored(self, outcome: Outcome) -> None:
        """What a restore has come to."""
        point, passed, aside = outcome.point, outcome.passed, outcome.aside
        if point and not point.finished:
            records = outcome.record.files if outcome.record else ()
            what = amount(records) if self._size == 1 else f"all {self._size} ranks"
            moved = [f"moved to {self.discarded}: {', '.join(aside)}"] if aside else []
            text = "; ".join([f"restored {label(point.number, point.step)}: {what}", *passed, *moved])
            self.say(logging.WARNING if passed and not outcome.asked else logging.INFO, text)
            return
        if aside:
            logger.warning("a first start again; torn first files moved to %s: %s", self.discarded, ", ".join(aside))
        if passed:
            self.say(
                logging.WARNING,
                f"no set was ever complete, so the run begins with its initial files; {'; '.join(passed)}",
            )
        if point is None:
            self.say(logging.INFO, f"nothing to restore in {self._home.root.work}: a first start")
            return
        changed = outcome.changed
        but = f", but these are no longer what they were: {', '.join(changed)}" if changed else ""
        at = "" if point.step is None else f" at step {point.step}"
        level = logging.WARNING if changed else logging.INFO
        self.say(level, f"the run was finished{at}; its files are left alone{but}")

    def finished(self, step: int | None, files: int, last: Record | None) -> None:
        """`last`: the set after which the files were written, if they are a later state."""
        at = "" if step is None else f" at step {step}"
        newer = f", newer than {last.label}, so the result has no step" if last and last.step is not None else ""
        self.say(logging.INFO, f"finished{at}: {files} files in place{newer}")

    def begun_anew(self, path: str, grows: bool) -> None:
        if grows:
            if self.once(f"{path} grows"):
                logger.warning(
                    "%s, listed as append, grew, but was begun anew, or written anew in what it held at the last set: "
                    "the sets before need that; those that were not restored have no copy of it, and can no longer be "
                    "given back. If the program updates its beginning as it grows (a header, a count), no later set "
                    "can be given back either: list it as %s append copy", path, quoted(escaped(path)),
                )  # fmt: skip
            return
        logger.warning(
            "%s, listed as append, was cut, begun anew or taken away since the last set: the sets before need what "
            "it held; those that were not restored have no copy of that, and can no longer be given back", path,
        )  # fmt: skip


def sizes(files: Sequence[StoredFile]) -> dict[str, int]:
    data = [file for file in files if file.kind in ("file", "append")]
    return {"files": len(data), "bytes": sum(f.size for f in data), "stored": sum(f.stored_size for f in data)}


def amount(files: Sequence[StoredFile]) -> str:
    found = sizes(files)
    return f"{found['files']} files, {found['bytes'] / 1e6:.1f} MB"
