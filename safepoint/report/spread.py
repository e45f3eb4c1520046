"""The part of the page that tells how unlike the ranks are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from safepoint.ledger.lives import Run
from safepoint.report.bars import MOST, Bar, bars
from safepoint.report.markup import tag, text
from safepoint.words import precise, size


def spread(run: Run) -> list[str]:
    """How unlike the ranks are: a slow one, or one with more to save, holds up all."""
    if len(run.parts) < 2:
        return []
    slowest = max(run.parts, key=lambda part: part.storing[0])
    middle = median(part.storing[0] for part in run.parts)
    most, least = max(part.bytes for part in run.parts), min(part.bytes for part in run.parts)
    words = (
        f"Rank {slowest.rank} took {precise(slowest.storing[0])} to make a set durable (the median of its sets), the "
        f"rank in the middle {precise(middle)}. Per rank between {size(least)} and {size(most)} were saved."
    )
    storing = [(part.rank, *part.storing) for part in run.parts]
    blocked = [(part.rank, *part.blocked) for part in run.parts if part.blocked]
    drawings = [bars("From hide to durable, by rank", _by_rank(storing), precise, "store", "rank")]
    if blocked:
        drawings.append(bars("Blocked in hide, by rank", _by_rank(blocked), precise, "blocked", "rank"))
    caption = "A bar is the median of the sets of a rank, the thin line above it leads to the longest."
    return [
        tag("h2", "Ranks"),
        tag("p", text(words)),
        tag("div", *[tag("figure", drawing) for drawing in drawings], class_="many"),
        tag("p", text(caption), class_="soft"),
    ]


def _by_rank(parts: Sequence[tuple[int, float, float]]) -> list[Bar]:
    """A bar for each rank, from its middle and its largest value; of very many ranks one for several: the slowest."""
    every, found = max(1, math.ceil(len(parts) / MOST)), []
    for begin in range(0, len(parts), every):
        some = parts[begin : begin + every]
        rank, middle, most = max(some, key=lambda part: part[1])
        others = f", the slowest of ranks {some[0][0]} to {some[-1][0]}" * (every > 1)
        words = f"rank {rank}{others}: {precise(middle)}, at most {precise(most)}"
        found.append(Bar(str(some[0][0]), words, middle, top=most))
    return found
