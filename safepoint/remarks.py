"""What a session says to the user in its log, each remark once, however often its cause comes again."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from safepoint.listener import Outcome
from safepoint.opening import Opening
from safepoint.patterns import NAME
from safepoint.ranks import Ranks, Serial
from safepoint.record import Record, StoredFile, label
from safepoint.saving import find

logger = logging.getLogger("safepoint")


class Remarks:
    """Of one session. What all ranks know is said by one of them."""

    def __init__(self, home: Opening, peers: Serial | Ranks) -> None:
        self._home, self._size = home, peers.size
        self._speaks = home.ranks.rank == home.lead or peers.size == 1
        self._said: set[str] = set()
        self._in_vain = 0  # calls of hide in a row that found nothing
        self._whose = home.ranks.rank, home.ranks.size
        self._more = sum(entry.optional for entry in home.manifest.entries)  # of which nothing was said

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
            listed = self._home.manifest.decides(item.path, *self._whose) if item.carried and self._more else None
            if listed and self.once(f"{listed.text} is carried over"):
                self._more -= 1
                logger.warning(
                    "%s was in the last set, and the program has not written it since: the next sets have it as it was "
                    "there, and restore and finish bring it back. To let it stay in place too: %s copy optional",
                    item.path, listed.text,
                )  # fmt: skip
        if there.many and self.once(f"{there.many[0].text} means"):
            text, count = there.many[0].text, there.many[1]
            top = os.path.dirname(text)
            instead = f"list {top}/ instead" if top else "write them into a directory, and list that with a slash"
            logger.warning("%s means %d files: one rename moves them all, if you %s", text, count, instead)

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
            self.say(logging.WARNING, f"no set was ever complete, so the initial files are: {'; '.join(passed)}")
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

    def begun_anew(self, paths: Iterable[str]) -> None:
        for path in paths:
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
