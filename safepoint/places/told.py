"""What is said of a trace: the lines of the program, what stands in the way, and whether it holds in other runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from safepoint.matching.matched import NONE, Matched
from safepoint.matching.symbols import Site
from safepoint.pace.interval import daly
from safepoint.places.blockers import epochs
from safepoint.places.chance import EVERY, Chance, Verdict
from safepoint.places.graph import Chain, Order, order
from safepoint.places.lines import (
    COUNTS_DIFFER,
    HIDE,
    LEGAL,
    MARK,
    TOP,
    Judged,
    Judgement,
    Line,
    candidates,
    judge,
    legal_marks,
)
from safepoint.places.picture import Judgement as Drawn
from safepoint.places.picture import Line as DrawnLine
from safepoint.words import count, precise

LEVELS = {"message": "no message under way", "files": "no request open", "strict": "nothing beside it left to chance"}
A_DAY = 86400.0  # s between two failures, where nobody has said it
SHOWN = 5  # lines that are no hide, mark or top of a loop


class Told(NamedTuple):
    """A trace, judged at one level."""

    matched: Matched
    order: Order
    judgement: Judgement
    chance: Verdict  # of the last legal visits of the hides together; without hides, of the lines that are shown
    holds: list[str]  # of each line in `judgement`: in which runs its legal visits are legal; empty: it has none

    @property
    def lines(self) -> list[Judged]:
        """What is there first, then what might be: the best of each first."""
        return sorted(self.judgement.lines, key=lambda one: one.line.what not in (HIDE, MARK))

    @property
    def hides(self) -> list[Judged]:
        return [one for one in self.judgement.lines if one.line.what == HIDE]

    @property
    def alone(self) -> list[int]:
        """Ranks that call no `hide`, where others do."""
        counts = sum((one.counts for one in self.hides), np.zeros(self.matched.ranks, "i8"))
        return np.flatnonzero(counts == 0).tolist() if counts.any() else []

    @property
    def decided(self) -> bool:
        """It can be judged: there is something, the notes of no rank are missing, and all ranks save together."""
        return bool(self.judgement.lines) and not self.matched.absent and not self.alone

    @property
    def good(self) -> bool:
        """Each `hide` is at a legal place; if there is none, some line is at every visit: one in a loop, if any is."""
        if not self.decided:
            return False
        if self.hides:
            return all(self._is_legal(one) for one in self.hides)
        again = [one for one in self.judgement.lines if one.visits > 1]
        return any(self._is_legal(one) for one in again or self.judgement.lines)

    def _is_legal(self, one: Judged) -> bool:
        return one.verdict == LEGAL and one.visits > 0


def tell(matched: Matched, level: str, wanted_ns: float, only: str = "") -> Told:
    """`only`: FILE:LINE, the line that is asked about; all candidates else. `wanted_ns`: how often it is to save; 0: as
    pays best for what its hides have cost, if there are any."""
    legal = order(matched, level)
    lines = candidates(matched)
    if only:
        lines = [line for line in lines if any(_is_at(matched.sites[site], only) for site in (line.site, *line.others))]
    judgement, chance = judge(legal, lines, wanted_ns or best(matched)), Chance(matched)
    holds = [_holds(legal, chance, one) for one in judgement.lines]
    hides = [one for one in judgement.lines if one.line.what == HIDE]
    last = [one.gaps[one.legal][-1] for one in hides or judgement.lines if one.legal.any()]
    cut = np.max(last, axis=0) if last else np.zeros(matched.ranks, "i8")  # legal places together are one
    return Told(matched, legal, judgement, chance.verdict(cut), holds)


def _holds(legal: Order, chance: Chance, one: Judged) -> str:
    """Of the last legal visit of a line, and so of all before it."""
    if not one.legal.any():
        return ""
    line = one.line
    key = epochs(legal, line.rank, line.gap, len(one.legal))[: legal.matched.actions].astype("i8")
    return chance.limits(key).verdict(int(np.flatnonzero(one.legal)[-1]))


def best(matched: Matched) -> float:
    """The interval, in ns, that pays best for what the hides of this run have cost; 0 if there was none that ended."""
    hides = matched.marks[matched.marks["hide"] & (matched.marks["leave"] > matched.marks["enter"])]
    cost = float((hides["leave"] - hides["enter"]).mean()) / 1e9 if len(hides) else 0.0
    return daly(cost, A_DAY) * 1e9 if cost else 0.0


def where(site: Site) -> str:
    """File and line, as short as it can be read; of a program without debug information its module and function."""
    name = Path(site.file).name
    if site.line:
        return f"{name}:{site.line}"
    return f"{name} ({site.function})" if site.function not in ("", "-") else name or "?"


def _is_at(site: Site, only: str) -> bool:
    """`only`: FILE:LINE; of FILE as many of the last directories count as it names."""
    name, _, line = only.rpartition(":")
    wanted, parts = Path(os.path.normpath(name)).parts, Path(site.file).parts
    return line == str(site.line) and parts[-len(wanted) :] == wanted


def _named(matched: Matched, line: Line) -> str:
    """Where a line is: of a `hide` that ranks call in several places all of them."""
    return ", ".join(dict.fromkeys(where(matched.sites[site]) for site in (line.site, *line.others)))


def head(told: Told) -> str:
    matched = told.matched
    messages = int(np.sum(matched.messages["sent"] >= 0))
    collectives = len(matched.kind) - int(np.sum(matched.messages["group"] >= 0))
    return (
        f"{count(matched.actions, 'action')}, {count(matched.ranks, 'rank')}, {count(messages, 'message')}, "
        f"{count(collectives, 'collective')}; level {told.order.level} ({LEVELS[told.order.level]}); "
        f"{count(told.order.places, 'legal place')} in a chain{_alone(told)}"
    )


def _alone(told: Told) -> str:
    if not told.alone:
        return ""
    call = "call" if len(told.alone) > 1 else "calls"
    return f"; {_ranks(told.alone)} {call} no hide: it cannot be told whether others may"


def rows(told: Told) -> list[list[str]]:
    """The table of lines."""
    found, more = list[list[str]](), 0
    holds = {id(one): word for one, word in zip(told.judgement.lines, told.holds, strict=True)}
    for one in told.lines:
        if one.line.what not in (HIDE, MARK, TOP):
            more += 1
            if more > SHOWN:
                continue
        wait = f"{precise(one.wait_mean_ns / 1e9)} / {precise(one.wait_p95_ns / 1e9)}" if len(one.legal) else "–"
        interval = precise(one.interval_ns / 1e9) if one.interval_ns else "–"
        every = f"; every {one.every:,} visits is enough" if one.every > 1 and one.verdict == LEGAL else ""
        site = _named(told.matched, one.line)
        verdict = one.verdict
        if one.verdict == COUNTS_DIFFER:
            verdict += f" ({one.counts.min():,} to {one.counts.max():,})"
        elif word := holds[id(one)]:
            verdict += f" in {word}" if one.verdict == LEGAL else f"; the legal ones in {word}" if word != EVERY else ""
        found.append([f"{one.line.what} {one.line.function}".strip(), site, f"{one.visits:,}",
                      f"{int(one.legal.sum())}/{one.visits}", wait, interval, verdict + every])  # fmt: skip
    return found


def blockers(told: Told) -> list[str]:
    """A sentence or two for each thing that stands in the way."""
    matched, found = told.matched, list[str]()
    if told.good and not any(told.judgement.lines[one].line.what in (HIDE, MARK, TOP) for one in told.judgement.asked):
        return found  # there is a line where it may save, and nobody has asked for another
    total = sum(len(told.judgement.lines[number].legal) for number in told.judgement.asked)
    for one in told.judgement.blockers:
        sent, received = where(matched.sites[one.sent]), where(matched.sites[one.received])
        text = f"{one.what} blocks {one.spoiled} of {total} visits: {_of_calls(matched, one.action)}"
        if len(one.messages):
            row, many = matched.messages[one.messages[0]], len(one.messages) > 1
            head = f"{len(one.messages):,} messages block" if many else "a message blocks"
            posted = where(matched.sites[matched.site[row["posted"]]]) if row["posted"] != NONE else received
            text = (f"{head} {one.spoiled} of {total} visits: {'such as ' if many else ''}rank {row['source']} → "
                    f"{row['dest']}, tag {row['tag']}, {matched.objects[row['comm']]}; sent {sent}, "
                    f"{f'receive posted {posted}, ' if posted != received else ''}"
                    f"{f'received {received}' if row['received'] != NONE else 'never received'}")  # fmt: skip
            if one.later:
                text += f", {count(one.later, 'visit')} later"
        better = [
            f'"{line.line.what} {_named(matched, line.line)}" is legal at {legal} of {line.visits} visits'
            for number, legal in zip(told.judgement.asked, one.without, strict=True)
            if legal > int((line := told.judgement.lines[number]).legal.sum())
        ]
        without = "without them" if len(one.messages) > 1 else "without it"
        found.append(text + "".join(f"\n  {without} {line}" for line in better[:3]))
    return found


def _of_calls(matched: Matched, action: int) -> str:
    """This call, with those that belong to it on other ranks, by line."""
    groups = matched.group[matched.member == action]
    together = np.unique(np.append(matched.member[np.isin(matched.group, groups)], action))
    ranks: dict[str, list[int]] = {}
    for one in together.tolist():
        call = f"{matched.functions[matched.function[one]]} at {where(matched.sites[matched.site[one]])}"
        ranks.setdefault(call, []).append(int(np.searchsorted(matched.begins, one, "right")) - 1)
    return ", ".join(f"{call} on {_ranks(of)}" for call, of in ranks.items())


def _ranks(numbers: list[int]) -> str:
    known = sorted(set(numbers))
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"rank{'s' * (len(known) > 1)} {', '.join(map(str, known[:SHOWN]))}{more}"


def drawn(told: Told) -> Drawn:
    """What the picture is given."""
    matched, legal = told.matched, told.order
    lines = [
        DrawnLine(f"{one.line.what} {one.line.function}".strip(), matched.sites[one.line.site], one.legal, one.times,
                  one.wait_mean_ns / 1e9, one.wait_p95_ns / 1e9, one.interval_ns / 1e9 or float("nan"), one.verdict)
        for one in told.lines
    ]  # fmt: skip
    rows = [row for one in told.judgement.blockers for row in one.messages.tolist()]
    return Drawn(Chain(legal), legal_marks(legal), np.array(rows, "i8"), lines, [head(told)], matched.remarks)
