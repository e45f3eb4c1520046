"""How a directory is brought back to its last complete set: the steps of `restore`, on all ranks.

    mark --> survey, settle --> choose --> keep what W alone has --> swap --> newer sets go
                                  |
                                  +--> none was ever complete: the initial files go back, a first start

Between two agreements each rank does its part alone, and brings its failure along to the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

from safepoint.disk.files import exists
from safepoint.errors import DamagedError, RestoreError, UsageError
from safepoint.listener import Outcome, SavePoint
from safepoint.opening import Opening, new_life, whole
from safepoint.owner import refuse_held
from safepoint.ranks import LARGEST, Ranks, Serial
from safepoint.record import Life, Record, life_of, mark_key
from safepoint.restoring import baseline, choose, grown, newer, settle, stage, survey, swap
from safepoint.restoring.read import Damaged
from safepoint.restoring.stage import BY_HAND, Progress
from safepoint.saving import prune
from safepoint.saving.memory import Memory, read_lost

logger = logging.getLogger("safepoint")
Asked = tuple[str, int] | None  # "step" or "set", and its number; None: the newest set
TOLD = "cannot restore", "the listed files are untouched"


def asked_for(step: SupportsIndex | None, set: SupportsIndex | None) -> Asked:
    """Raises `UsageError`."""
    if step is not None and set is not None:
        raise UsageError("restore takes a step or the number of a set, not both; nothing was changed")
    told = {
        name: whole(f"restore: {name}", value) for name, value in (("step", step), ("set", set)) if value is not None
    }
    return next(iter(told.items()), None)


def _named(asked: Asked) -> str:
    return " ".join(map(str, asked or ()))


def _set_of(asked: Asked) -> str:
    return f"set of {_named(asked)}" if asked and asked[0] == "step" else _named(asked)


class Restart:
    """One call of `restore`. Collective among `peers`, the ranks that agree on every set."""

    def __init__(
        self, home: Opening, peers: Serial | Ranks, memory: Memory, sets: prune.Sets, mark: dict[str, Any] | None,
        asked: Asked = None, *, background: bool,
    ) -> None:  # fmt: skip
        """`sets`: learns which there are. `mark`: that of a finished run. `asked`: which set is to be given back."""
        self._home, self._peers, self._memory, self._sets, self._mark = home, peers, memory, sets, mark
        self._asked, self._background = asked, background
        self._finished = mark_key(mark)
        self._there: list[int] = []  # the sets of this rank, whatever their state
        self._gone: list[int] = []  # sets that an earlier life had begun to remove
        self._failed = False  # there are sets that failed, or were kept as such
        self._resumed = False  # a restore was killed before this one, which repeats it
        self.newest_life = 0  # of all that this rank has found
        self.number: int | None = None  # of the set that was given back
        self.changing = False  # W may be a mixture, until `run` has returned
        self.unkept: list[str] = []  # what it means that no copy is kept of some append files

    def run(self, progress: Progress | None = None) -> Outcome:
        """On return W holds the newest set that all peers have, or the initial files, or the result of a finished run.
        On error it is untouched, unless `changing`. Killed inside: the next restore repeats this."""
        home, peers = self._home, self._peers
        self._memory.hidden = []
        found, foreign = peers.together(self._survey)
        found, history = peers.together(lambda: self._settle(found, foreign))
        found = self._only_asked(found)
        choice = choose.choose([self._party(found, history)], peers, partial(self._tried, progress))
        passed = [": ".join(why) for why in choice.passed.values()]
        if choice.lost or (self._asked and choice.number is None):
            listed = "\n  ".join(passed)
            which = f"the {_set_of(self._asked)}" if self._asked else "none of the sets"
            text = f"{which} in {home.root.work} is {'not ' * bool(self._asked)}whole"
            raise DamagedError(f"{text}; no file was touched:\n  {listed}\n{BY_HAND}")
        if choice.number is not None:
            outcome = self._give_back(choice.number, choice.records.get(home.root.rank), passed)
            left = [c for c in found if c.number <= choice.number]
            # There may be more to remove: what a finish mark has ended, the baseline, and sets that failed.
            whole = history and all(c.record for c in found if c.committed)  # then there is no baseline
            if self._mark is None and whole and not self._failed:
                numbers = [sorted(c.number for c in left if c.committed == committed) for committed in (True, False)]
                self._sets.learn(*numbers)
            return outcome._replace(left=[c.number for c in left if c.committed])
        peers.together(lambda: self._refuse_held(None))
        aside = peers.together(lambda: self._give_up(check=self._mark is None))
        peers.together(self._renew_baseline)
        if self._mark is None:
            return Outcome(None, None, passed, aside, [])
        files, changed = peers.together(self._after_finish)
        mark = self._mark
        return Outcome(SavePoint(mark["number"], mark["step"], mark["time"], files, True), None, passed, aside, changed)

    def _survey(self) -> tuple[list[survey.Candidate], dict[int, str]]:
        """The sets of this rank; and why some are none for this program. Nothing is changed."""
        home = self._home
        if not home.active:
            return [], {}
        with home.root.reporting(RestoreError, *TOLD):
            baseline.refuse_outside(home.root, home.manifest)
            standing = home.root.standing()
            self._there, self._gone, self._failed = standing["set"], standing["gone"], bool(standing["failed"])
            found = survey.survey(home.root, self._finished, self._there, all_sizes=False)
            alone = self._peers.size == 1
            return found, survey.refuse_foreign(home.root, found, self._finished, alone=alone)

    def _settle(self, found: list[survey.Candidate], foreign: dict[int, str]) -> tuple[list[survey.Candidate], bool]:
        """The sets of this rank as they are now; and whether there was a complete one, of all ranks, as far as it
        knows."""
        home, root = self._home, self._home.root
        if not home.active:
            return [], False
        with root.reporting(RestoreError, *TOLD):
            found = settle.settle(root, home.page_cache, found, self._gone, self._memory)
            large = [c.record.label for c in found if c.record and home.ranks.too_large(c.record.step)]
            if large:
                raise UsageError(f"{large[0]} cannot be agreed on: with several ranks a step must fit into 62 bits")
            self.newest_life = max([life_of(self._finished), *(life_of(c.key) for c in found)])
            found = [c._replace(record=None, reason=foreign[c.number]) if c.number in foreign else c for c in found]
            self._resumed = exists(root.disk, root.stage)
            return found, survey.once_committed(root, found)

    def _only_asked(self, found: list[survey.Candidate]) -> list[survey.Candidate]:
        """The others cannot be chosen. Raises `UsageError` if no rank has what was asked for."""
        if self._asked is None:
            return found
        what, number = self._asked
        fits = [c.number == number if what == "set" else self._step(c) == number for c in found]
        there = ", ".join(c.whose.label for c in found if c.whose) or "none"
        missing = UsageError(f"there is no {_set_of(self._asked)} in {self._home.root.work}; there are: {there}")
        self._peers.fail_together(None if self._peers.least(-any(fits)) != (0,) else missing)
        reason = f"removed, as {_named(self._asked)} was asked for"
        return [c if fit else c._replace(record=None, reason=reason) for c, fit in zip(found, fits, strict=True)]

    def _step(self, candidate: survey.Candidate) -> int | None:
        """Also of a set whose record is damaged: then its list says it."""
        if candidate.whose:
            return candidate.whose.step
        try:
            return survey.read_taken(self._home.root, candidate.number).step
        except (Damaged, OSError):
            return None

    def _trial(self, progress: Progress | None, parts: choose.Parts) -> dict[int, str]:
        """As `choose` wants it. Local."""
        return choose.staged(self._memory, progress, parts)

    def _tried(self, progress: Progress | None, parts: choose.Parts) -> dict[int, str]:
        """A trial, after which nobody has a file open that is about to go: before W changes on any rank. Local."""
        damage = self._trial(progress, parts)
        if not damage:
            self._refuse_held(next((part.record for _, part in parts), None))
        return damage

    def _refuse_held(self, record: Record | None) -> None:
        """`record`: of this rank's part of the set; None: it gets its initial files."""
        home, root, finished = self._home, self._home.root, self._finished
        if not home.active:
            return
        with root.reporting(RestoreError, *TOLD):
            if record:
                refuse_held(root, f"{record.label} not restored", swap.touched(root, home.manifest, record))
            elif exists(root.disk, root.baseline) and (
                (self._mark is None and not home.first_start)
                or any(survey.sets_after(root, finished, state) for state in ("set", "failed"))
            ):
                refuse_held(root, "the initial files not put back", baseline.touched(root, home.manifest))

    def _party(self, found: list[survey.Candidate], history: bool) -> choose.Party:
        """What this rank brings to the choice. `stage/` that was there says that a restore was killed: it stays."""
        root = self._home.root
        if not self._home.active:
            return choose.Party(None)
        undo = None if self._resumed else partial(stage.clear_stage, root)
        return choose.Party(root, found, once=history, undo=undo)

    def _give_up(self, *, check: bool) -> list[str]:
        """This rank has no set to give back: its initial files are; the names of torn first files, set aside."""
        home, root = self._home, self._home.root
        if not home.active:
            return []
        with root.reporting(RestoreError, *TOLD):
            settle.give_up(root, self._finished, resumed=self._resumed)
            torn = []
            if not home.first_start and check and exists(root.disk, root.baseline):
                torn = baseline.check_baseline(root, home.manifest)
            stage.clear_stage(root)
            return torn

    def _renew_baseline(self) -> None:
        home = self._home
        if home.active:
            with home.root.reporting(RestoreError, *TOLD):
                baseline.renew_baseline(home.root, home.manifest)

    def _after_finish(self) -> tuple[tuple[str, ...], list[str]]:
        """A new history may begin here. The files that are the result, and those of them that have changed since."""
        home, root, mark = self._home, self._home.root, self._mark
        if not home.active or mark is None:
            return (), []
        drop_sets(home, self._sets)
        with root.reporting(RestoreError, *TOLD):
            baseline.note_baseline(root, home.manifest)
            if home.ranks.rank != home.lead:  # the mark lists the files of the rank that wrote it
                return tuple(baseline.files_in_place(root, home.manifest)), []
        return tuple(row["path"] for row in mark["files"]), survey.changed_since(root, mark)

    def _give_back(self, number: int, record: Record | None, passed: list[str]) -> Outcome:
        """Swap the staged set in, on every rank; then no newer one is left on any."""
        peers, self.number, self.changing = self._peers, number, True
        (holder,) = peers.least(peers.rank if record else LARGEST)
        step, taken, patterns, extra = peers.share(
            record and (record.step, record.time, record.patterns, record.extra), holder
        )
        peers.together(lambda: self._keep_prefixes(record))  # on all ranks, before W changes on any
        aside = peers.together(lambda: self._swap(number, record, patterns))
        for file in record.files if record else ():
            self._memory.lost.pop(file.path, None)
        files = tuple(f.path for f in record.files if f.kind in ("file", "append", "link")) if record else ()
        point = SavePoint(number, step, taken, files, extra=extra or {})
        return Outcome(point, record, passed, aside, [], asked=self._asked is not None)

    def _keep_prefixes(self, record: Record | None) -> None:
        """From now on the program may cut the append files of this set, or begin them anew."""
        if record:
            limit = self._home.manifest.setting("copy_append_below")
            self.unkept = grown.keep_prefixes(self._home.root, record, limit)

    def _swap(self, number: int, record: Record | None, patterns: tuple[str, ...]) -> list[str]:
        home = self._home
        if record is None:
            aside = self._give_up(check=True)
        else:
            aside = swap.swap(home.root, home.manifest, record, resumed=self._resumed)
        if home.active:
            left = newer.drop_newer(home.root, home.manifest, number, patterns, self._there)
            if left:
                self._failed = True
                logger.warning("damaged, and only in a set that was passed over, kept as a failed one: %s", left)
            stage.clear_stage(home.root, record if self._background else None)
        return aside


def drop_sets(home: Opening, sets: prune.Sets) -> None:
    """After a finish mark: sets and baseline are history. What cannot be removed now goes at the next start."""
    root = home.root
    try:
        for state in ("set", "failed"):
            numbers: Sequence[int] = root.numbers(state)
            committed = [n for n in numbers if exists(root.disk, f"{root.state(state, n)}/record.json")]
            wanted = home.keep.wanted(committed, sets.fact(root)) if state == "set" else set()
            prune.drop(root, [n for n in numbers if n not in wanted], state)
        for path in (root.baseline, root.lost):
            if exists(root.disk, path):
                root.disk.remove(path)
    except OSError as error:
        logger.warning("finished, but sets not removed: %s", error)


class Adopted(NamedTuple):
    """What a session goes on from that gives nothing back."""

    number: int  # the newest that a set or a finish mark has had
    life: Life
    record: Record | None  # of the newest complete set
    ended: int  # sets up to this are those of a finished run


def adopted(home: Opening, memory: Memory) -> Adopted:
    """Look at the sets that are here, of a serial program whose files in place are newer, and whole. Nothing is
    changed. Raises `UsageError` where only `restore` can tell what is whole."""
    root = home.root
    if home.ranks.size > 1:
        raise UsageError("adopt with several ranks: all of them call restore() instead")
    with root.reporting(RestoreError, "cannot look at the sets", "nothing was changed"):
        mark = survey.finish_mark(root)
        found = survey.survey(root, after=mark_key(mark))
        newest = max((c.number for c in found if c.record), default=0)
        uncommitted = [c for c in found if c.number > newest]
        if uncommitted or exists(root.disk, root.stage):
            what = "a restore was killed here"
            if uncommitted:
                what = f"set {uncommitted[0].number} is not whole: {uncommitted[0].reason}"
            raise UsageError(f"{what}; call restore first (safepoint restore), nothing was changed")
        memory.lost.update(read_lost(root))
    number = max((candidate.number for candidate in found), default=mark["number"] if mark else 0)
    life = new_life(home.ranks, home.lead, max([life_of(mark_key(mark)), *(life_of(c.key) for c in found)]))
    newest_record = next((candidate.record for candidate in found if candidate.record), None)
    memory.away = stage.away(root, home.manifest, newest_record)  # the hide of another process has moved them
    return Adopted(number, life, newest_record, mark["number"] if mark else 0)
