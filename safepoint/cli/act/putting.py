"""What `safepoint drain` does for one set, once or again and again."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from safepoint import manifest, words
from safepoint.cli import terminal
from safepoint.cli.look.overview import look
from safepoint.cli.look.state import Overview, SetState
from safepoint.disk import kernel
from safepoint.errors import (
    ManifestError,
    NothingSavedError,
    UsageError,
)  # fmt: skip
from safepoint.program import SETTINGS
from safepoint.tiers.names import Claim
from safepoint.tiers.sending import Parts, Rate, Sender, Sent

DISK = terminal.DISK
PART = 5.0  # seconds of a long wait


class Late(Exception):
    """The time that was given has passed."""


class Job(NamedTuple):
    """What was asked for."""

    directory: str
    number: int | None
    until: float | None
    rate: Rate
    pid: int | None
    began: int | None  # when the process of `pid` was started
    anew: bool
    rest: Callable[[float], None]  # for so many seconds; 0: only see whether the time is over

    @property
    def ended(self) -> bool:
        """Whether that process is gone; its number may be another's by now."""
        return self.pid is not None and (self.began is None or kernel.began(self.pid) != self.began)


def newest(job: Job) -> tuple[SetState, Parts]:
    """The set that is to be put, and its parts."""
    seen = look(DISK, job.directory)
    seen.raise_if_empty()
    if job.number is not None:
        chosen: SetState | None = seen.find(job.number)
    else:
        chosen = next((s for s in seen.sets if s.state == "complete"), None)
    if chosen is None or chosen.state not in ("complete", "ended", "foreign"):
        if seen.finished:
            raise NothingSavedError(
                f"the run in {seen.work} was finished: the files in place are the result, copy those"
            )
        why = f"{chosen.label} is {chosen.state}: {chosen.why}" if chosen else "no set is complete"
        raise NothingSavedError(f"nothing to put: in {seen.work} {why}{to_commit(seen, 0)}")
    parts = {}
    for rank in chosen.needed:
        record = chosen.parts[rank].record
        assert record
        parts[record.rank] = (seen.root(rank, chosen), record)
    return chosen, parts


def to_commit(seen: Overview, number: int) -> str:
    """What to do if a set after this one is whole but for its commit, as after a kill."""
    newer = next((s for s in seen.sets if s.state == "completable" and s.number > number), None)
    if newer is None or seen.running:
        return ""
    return f"; {newer.label} is uncommitted: `safepoint restore`, or the next start, commits it, then it can be put"


def send(sender: Sender, claim: Claim, job: Job, chosen: SetState, parts: Parts) -> Sent:
    def tick(more: int) -> None:
        job.rest(0)
        advance(more)

    total = sum(file.stored_size for _, record in parts.values() for file in record.files)
    with terminal.progress(f"putting {chosen.label}", total) as advance:
        try:
            return sender.send(parts, claim, job.rate, tick, manifest_text(job.directory), anew=job.anew)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise UsageError(
                f"{chosen.label} not put: {error.filename}: {error.strerror}: all its files are open while it goes, "
                f"so raise the limit (`ulimit -n`), or let small files be one (the setting `bundle_from`)"
            ) from error


def wait(until: float | None, seconds: float, moves: Callable[[], None] | None = None) -> None:
    """So long, but not past the end of the time that was given. Raises `Late`. `moves` is told now and then that it is
    meant."""
    while moves and seconds > PART:
        moves()
        time.sleep(PART)
        seconds -= PART
    if moves:
        moves()
    if until is not None and time.monotonic() + seconds > until:
        time.sleep(max(0.0, until - time.monotonic()))
        raise Late("the set is not there whole: the time is over; a later drain goes on with the rest")
    time.sleep(seconds)


def manifest_text(directory: str) -> str:
    """The text that goes along, if it is one, without its comments: what is no part of it may be a secret."""
    with suppress(ManifestError):
        parsed = manifest.parse(text := manifest.read(directory), settings=SETTINGS)
        bare = "\n".join(map(_without_comment, text.split("\n")))
        return bare if manifest.parse(bare, settings=SETTINGS) == parsed else ""
    return ""


def _without_comment(line: str) -> str:
    position = len(line) - len(line.lstrip().removeprefix("!"))
    while match := manifest.TOKEN.match(line, position):
        if match.lastgroup == "comment":
            return line[: match.start("comment")].rstrip()
        position = match.end()
    return line


def tell(chosen: SetState, sent: Sent, url: str, newer: str) -> None:
    how = f"{words.size(sent.went)} put now" if sent.went else "it was there already"
    terminal.say(f"{chosen.label} is at {url}: {words.size(sent.size)}, {how}{newer}")
    if sent.removed:
        terminal.say(f"removed there: {', '.join(f'set {name.number}' for name in sent.removed)}")
