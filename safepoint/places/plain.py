"""What `safepoint places --json` prints: all that the text says, with keys that stay. Times are in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from safepoint.matching.matched import NONE, Matched
from safepoint.matching.symbols import Site
from safepoint.places.asked import alive_at
from safepoint.places.blockers import Blocker
from safepoint.places.chance import Doubt, timed
from safepoint.places.lines import Judged
from safepoint.places.told import Told

UNKNOWN = 2**64 - 1
MOST = 100  # messages of one blocker


def as_json(told: Told) -> dict[str, Any]:
    matched = told.matched
    return {
        "actions": matched.actions, "ranks": matched.ranks, "level": told.order.level, "places": told.order.places,
        "holds": told.chance.word, "good": told.good, "remarks": matched.remarks,
        "lines": [
            {**_line(matched, one), "holds": word or None}
            for one, word in zip(told.judgement.lines, told.holds, strict=True)
        ],
        "blockers": [_blocker(told, one) for one in told.judgement.blockers],
        "doubts": [_doubt(matched, one) for one in told.chance.doubts],
        "timed": _timed(told),
        "needed": alive_at(told),
    }  # fmt: skip


def _site(site: Site) -> dict[str, Any]:
    return {"file": site.file, "line": site.line or None, "function": site.function}


def _of(matched: Matched, action: int) -> dict[str, Any] | None:
    """A call: where it stands, what it is, and its rank."""
    if action == NONE:
        return None
    rank = int(np.searchsorted(matched.begins, action, "right")) - 1
    return {
        "rank": rank,
        "call": matched.functions[matched.function[action]],
        **_site(matched.sites[matched.site[action]]),
    }


def _line(matched: Matched, one: Judged) -> dict[str, Any]:
    return {
        "what": one.line.what, "call": one.line.function, **_site(matched.sites[one.line.site]),
        "others": [_site(matched.sites[site]) for site in one.line.others],
        "visits": one.visits, "of_ranks": one.counts.tolist(), "legal": int(one.legal.sum()),
        "wait_mean": one.wait_mean_ns / 1e9 if len(one.legal) else None,
        "wait_p95": one.wait_p95_ns / 1e9 if len(one.legal) else None,
        "interval": one.interval_ns / 1e9 or None, "every": one.every, "verdict": one.verdict,
    }  # fmt: skip


def _message(matched: Matched, number: int) -> dict[str, Any]:
    row = matched.messages[number]
    size = int(row["bytes"])
    return {
        "source": int(row["source"]), "dest": int(row["dest"]), "tag": int(row["tag"]),
        "comm": matched.objects[row["comm"]], "bytes": None if size == UNKNOWN else size,
        **{end: _of(matched, int(row[end])) for end in ("sent", "posted", "received")},
    }  # fmt: skip


def _blocker(told: Told, one: Blocker) -> dict[str, Any]:
    matched = told.matched
    groups = matched.group[matched.member == one.action]
    together = np.unique(np.append(matched.member[np.isin(matched.group, groups)], one.action)).tolist()
    return {
        "what": one.what, "spoiled": one.spoiled, "later": one.later, "count": len(one.messages),
        "messages": [_message(matched, number) for number in one.messages[:MOST].tolist()],
        "calls": [] if len(one.messages) else [_of(matched, action) for action in together],
        "without": [
            {"line": told.judgement.asked[at], "legal": legal} for at, legal in enumerate(one.without)
        ],
    }  # fmt: skip


def _doubt(matched: Matched, one: Doubt) -> dict[str, Any]:
    others = [number for number in one.candidates.tolist() if number != one.receive]
    return {"took": _message(matched, one.receive), "could_have_taken": [_message(matched, one) for one in others]}


def _timed(told: Told) -> list[dict[str, Any]]:
    """Calls whose outcome depends on time."""
    actions = timed(told.matched)[told.chance.unsure]
    return [found for action in actions[actions != NONE].tolist() if (found := _of(told.matched, action))]
