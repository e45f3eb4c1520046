"""Rows of a template: docs/templates.md, the meaning."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest
from testbed import drawn_templates, rows_by_force
from testbed.drawn_templates import call, members, value

from safepoint.check.call import Call
from safepoint.check.rows import Matcher
from safepoint.check.situations import Situation
from safepoint.check.template import EVERY, Argument, Condition, Constant, Expression, Item, Process, Template

TRIES = 20_000 if os.environ.get("SAFEPOINT_CRASH") == "long" else 1_500


def found(template: Template, calls: list[list[Call]], order: Iterable[int] = ()) -> list[Situation]:
    """Ranks are heard in this order, then one after the other."""
    matcher = Matcher(template, len(calls), members)
    left = [list(some) for some in calls]
    told = list[Situation]()
    for rank in [*order, *(rank for rank, some in enumerate(calls) for _ in range(len(some) + 1))]:
        if left[rank]:
            told += matcher.feed(left[rank].pop(0))
            if not left[rank]:
                told += matcher.ended(rank)
    for rank, some in enumerate(calls):
        told += matcher.ended(rank) if not some else []
    return sorted(told + matcher.finish())


@pytest.mark.parametrize("part", range(4))
def test_what_is_found_is_what_trying_everything_finds(part: int) -> None:
    for seed in range(part, TRIES, 4):
        draw = random.Random(seed)
        template, calls = (
            drawn_templates.drawn_template(draw),
            drawn_templates.drawn_calls(draw, draw.choice([1, 2, 2, 3, 3])),
        )
        order = [rank for rank, some in enumerate(calls) for _ in some]
        draw.shuffle(order)
        keys = [one.key for one in found(template, calls, order)]
        assert len(set(keys)) == len(keys), seed
        assert set(keys) == rows_by_force.situations(template, calls, members), seed
