"""Random programs run on a model of MPI that knows what took what; matching their notes finds the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed import ran_mpi
from testbed.noted import plain
from testbed.ran_mpi import Outcome
from testbed.random_mpi import Program, program
from testbed.sweep import LONG, many
from testbed.written_down import killed, written_down

from safepoint.matching.matched import NONE, Matched
from safepoint.places.graph import LEVELS, order

PROGRAMS = 50_000 if LONG else many(250)
HOWS: list[dict[str, Any]] = [
    {}, {"certain": True, "events": 14}, {"cut_short": True}, {"events": 20, "wild": 0.6}, {"wild": 0.0, "events": 16},
]  # fmt: skip


def matched(directory: Path, written: Program, outcome: Outcome) -> Matched:
    """What is made of the notes of this run."""
    return written_down(directory, written, outcome).matched(*killed(outcome))


OF_MESSAGES = {"groups", "arcs", "never", "messages"}


def undecided(outcome: Outcome) -> bool:
    """The notes do not say what a receive took that was for any source or tag and was never completed, nor whether a
    receive was cancelled whose completion is not noted."""
    rows = outcome.matched.messages
    open_ = rows[(rows["posted"] != NONE) & (rows["received"] == NONE)]
    cancelled = any(calls and calls[-1].call.name == "Cancel" for calls in outcome.calls)
    return cancelled or bool(np.any(open_["wild_source"] | open_["wild_tag"]))


def legal_places_are_true(found: Matched, truth: Matched, which: object) -> None:
    """The least legal cut through each gap: all others are unions of such."""
    for level in LEVELS[:2]:
        here, there = order(found, level), order(truth, level)
        for rank in range(found.ranks):
            for gap in np.flatnonzero(here.possible(rank)).tolist():
                cut = here.least(rank, gap)
                assert cut is not None and there.legal_cut(cut).legal, (which, level, cut, there.legal_cut(cut))


@pytest.mark.hypothesis  # in make proof, too, with more of them
def test_the_notes_of_a_random_program_are_matched_as_it_went(tmp_path: Path) -> None:
    """Where the notes leave open what became of a receive, all but messages is the same; and no place is legal there
    that is not."""
    left_open = 0
    for seed in range(PROGRAMS):
        how = HOWS[seed % len(HOWS)]
        written = program(seed, **how)
        outcome = ran_mpi.run(written, seed)
        made = matched(tmp_path / "t", written, outcome)
        truth, found = plain(outcome.matched), plain(made)
        left = OF_MESSAGES if undecided(outcome) else set()
        left_open += bool(left)
        if left:
            legal_places_are_true(made, outcome.matched, (seed, how))
        wrong = {name for name in truth if truth[name] != found[name]} - left
        assert not wrong, (seed, how, {name: (truth[name], found[name]) for name in wrong})
        shutil.rmtree(tmp_path / "t")
    assert left_open < PROGRAMS / 5
