"""What the log tells of earlier lives, for the first decision of this one."""

from __future__ import annotations

from typing import NamedTuple


class Past(NamedTuple):
    """What the log tells of earlier lives: failures, seconds at work, and what their last set cost and took, seconds
    that the program stood still and seconds until it was durable; None: not known."""

    failures: int = 0
    seconds: float = 0.0
    cost: float | None = None
    store: float | None = None


def past(log: bytes, *, present: bool) -> Past:
    """Of a log. `present`: its last life is the one at work, of which only roll-backs count."""
    from safepoint.ledger.lines import heads, number  # here: a program that asks nothing need not load it

    lives: list[list[float]] = []  # of each: its begin, its last sign of life, 1 if it failed, and its last two sets
    rolled, cost, store = 0, None, None
    for time, event, rest in heads(log):
        began = number(rest, "began")
        if b'"by_hand"' in rest:
            continue
        if began is not None or not lives:
            lives.append([time if began is None else began, time, 1, 0.0, 0.0])
        elif event == "restored":
            rolled += 1
        life = lives[-1]
        life[1] = max(life[1], time)
        if event in ("finished", "stopped") or (event == "ended" and b'"error"' not in rest):
            life[2] = 0
        elif event == "ended":
            life[2] = 2 if began is None else 0  # a start that was refused has nothing else to tell
        elif event == "saved":
            life[2:] = [1, life[4], time]
            cost = cost if (found := number(rest, "cost")) is None else found
            store = store if (found := number(rest, "seconds")) is None else found
    ended = lives[:-1] if present else lives
    seconds = sum(end - begin for begin, end, *_ in ended)
    for life, after in zip(ended, [*lives[1:], None], strict=False):  # after its last line a killed one went on
        if life[2] == 1 and life[3]:
            unseen = (life[4] - life[3]) / 2
            seconds += min(unseen, max(0.0, after[0] - life[1])) if after else unseen
    return Past(sum(life[2] > 0 for life in ended) + rolled, max(0.0, seconds), cost, store)
