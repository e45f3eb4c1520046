"""Does a cut come about in each run? The verdicts beside the definition, and beside other runs of the same program."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from testbed.ran_mpi import Outcome, run
from testbed.random_mpi import ANY, NULL, Call, Program, program
from testbed.sweep import LONG, many

from safepoint.matching.matched import NONE
from safepoint.places.causes import causes, last_before
from safepoint.places.chance import EVERY, SAME, THIS, Chance, Difference, against
from safepoint.places.graph import order
from safepoint.places.oracle import Cut, Definition

PROGRAMS = 5_000 if LONG else many(320)
RUNS = 12  # of a program, each at another speed


def of(*ranks: list[Call]) -> Program:
    return Program([tuple(range(len(ranks)))], [list(calls) for calls in ranks], False)


def send(peer: int, tag: int) -> Call:
    return Call("Send", 1, peer=peer, tag=tag)


def recv(peer: int, tag: int) -> Call:
    return Call("Recv", 2, peer=peer, tag=tag)


def a_run(written: Program, *sources: int, rank: int = 0) -> Outcome:
    """One that ends, in which the first receives of a rank get messages from these ranks."""
    for seed in range(200):
        outcome = run(written, seed)
        got = [went.got[0][0] for went in outcome.calls[rank] if went.got]
        if outcome.ended and got[: len(sources)] == list(sources):
            return outcome
    raise AssertionError("no such run")


def legal_cuts(outcome: Outcome, level: str = "files") -> list[np.ndarray]:
    """Legal cuts of a run: those of a chain, and the least through each gap."""
    found = order(outcome.matched, level)
    cuts = [found.place(number) for number in range(found.places)]
    for rank in range(outcome.matched.ranks):
        cuts += [
            one for gap in np.flatnonzero(found.possible(rank)).tolist() if (one := found.least(rank, gap)) is not None
        ]
    return [np.array(one) for one in sorted({tuple(one.tolist()) for one in cuts})]


# The rule of 2006.

FIRST = [recv(ANY, 5), recv(1, 5)], [send(0, 5)], [send(0, 5)], []
THEN = [recv(3, 6), recv(ANY, 5)], [send(0, 5)], [], [send(0, 6)]
COUNTEREXAMPLE = of(*(first + then for first, then in zip(FIRST, THEN, strict=True)))
WITH_BARRIER = of(*([*first, Call("Barrier", 3), *then] for first, then in zip(FIRST, THEN, strict=True)))
BETWEEN = np.array([2, 1, 1, 0])


def test_a_cut_with_certain_neighbours_may_still_belong_to_this_run_only():
    """The wildcard before it could have taken the message that the next, named receive got."""
    matched = a_run(COUNTEREXAMPLE, 2, 1, 3, 1).matched
    verdict = Chance(matched).verdict(BETWEEN)
    assert verdict.word == THIS
    assert len(verdict.doubts) == 1
    sources = matched.messages["source"]
    assert sources[verdict.doubts[0].receive] == 2
    assert sorted(sources[verdict.doubts[0].candidates]) == [1, 2]


def test_the_rule_of_2006_calls_that_cut_certain():
    matched = a_run(COUNTEREXAMPLE, 2, 1, 3, 1).matched
    definition = Definition(matched)
    assert all(definition.certain(rank, gap) for rank, gap in enumerate(BETWEEN.tolist()))
    assert order(matched, "strict").legal_cut(BETWEEN).legal


def test_the_program_of_that_cut_ends_in_both_orders_but_not_with_a_barrier_there():
    a_run(COUNTEREXAMPLE, 2, 1, 3, 1)
    a_run(COUNTEREXAMPLE, 1, 1, 3, 2)
    assert {run(WITH_BARRIER, seed).ended for seed in range(50)} == {True, False}


# The three verdicts.


def test_a_master_that_takes_the_answers_in_any_order_is_alike_in_every_run_if_its_calls_are():
    outcome = run(of([recv(ANY, 1)] * 2 + [recv(1, 2)], [send(0, 1), send(0, 2)], [send(0, 1)]))
    assert Chance(outcome.matched).verdict(np.array([2, 1, 1])).word == SAME
    assert Chance(outcome.matched).verdict(np.array([0, 0, 0])).word == EVERY


def test_a_wildcard_with_one_sender_is_certain():
    outcome = run(of([recv(ANY, ANY)] * 2, [send(0, 1), send(0, 2)]))
    assert Chance(outcome.matched).verdict(np.array([2, 2])).word == EVERY


def test_a_message_sent_after_a_barrier_is_no_candidate_of_a_wildcard_before_it():
    barrier, bcast = Call("Barrier", 3), Call("Bcast", 3, root=1)
    for meeting, word in ((barrier, EVERY), (bcast, THIS)):
        outcome = a_run(of([recv(ANY, 1), meeting, recv(2, 1)], [send(0, 1), meeting], [meeting, send(0, 1)]), 1)
        assert Chance(outcome.matched).verdict(np.array([3, 2, 2])).word == word


def test_an_answer_to_a_sendrecv_is_a_candidate_of_its_receive():
    """It is sent in the same call that it is received in, not after it."""
    ask = Call("Sendrecv", 1, peer=1, tag=1, peer2=ANY, tag2=2)
    outcome = a_run(of([ask, recv(ANY, 2)], [recv(0, 1), send(0, 2)], [send(0, 2)]), 2)
    doubts = Chance(outcome.matched).verdict(np.array([2, 2, 1])).doubts
    assert [len(doubt.candidates) for doubt in doubts] == [2]


def test_what_a_sendrecv_sends_is_no_answer_to_what_it_receives():
    """Its message leaves before the other one comes, so the first wildcard could have taken it."""
    ask = Call("Sendrecv", 1, peer=0, tag=1, peer2=0, tag2=9)
    outcome = a_run(of([recv(ANY, 1), send(1, 9), recv(ANY, 1)], [send(NULL, 1), ask], [send(0, 1)]), 2)
    doubts = Chance(outcome.matched).verdict(np.array([3, 2, 1])).doubts
    assert [len(doubt.candidates) for doubt in doubts] == [2]


def test_the_post_of_a_barrier_waits_for_nobody():
    meeting = Call("Ibarrier", 3, slots=(1,))
    outcome = a_run(of([recv(ANY, 1), meeting, recv(2, 1)], [send(0, 1), meeting], [meeting, send(0, 1)]), 1)
    assert Chance(outcome.matched).verdict(np.array([3, 2, 2])).word == THIS


def test_a_wildcard_that_was_complete_before_the_send_is_in_no_doubt_even_if_an_earlier_one_is():
    """The first is posted before all, and completed late."""
    first = Call("Irecv", 2, tag=1, slots=(1,))
    calls = [first, recv(ANY, 1), send(2, 9), Call("Wait", 3, slots=(1,)), recv(ANY, 1)]
    outcome = run(of(calls, [send(0, 1)] * 2, [recv(0, 9), send(0, 1)]))
    posted = outcome.matched.messages["posted"]
    doubts = Chance(outcome.matched).verdict(np.array([5, 2, 2])).doubts
    assert [int(posted[doubt.receive]) for doubt in doubts] == [0]


def test_a_named_receive_of_any_tag_may_take_what_the_wildcards_leave():
    outcome = a_run(of([recv(ANY, 1), recv(2, ANY), recv(ANY, 1)], [send(0, 1)], [send(0, 1), send(0, 2)]), 2, 2, 1)
    assert outcome.matched.messages["tag"].tolist().count(2) == 1
    assert Chance(outcome.matched).verdict(np.array([3, 1, 2])).word == THIS


def test_what_a_wildcard_brought_is_no_cause_if_another_message_may_come():
    """Rank 3 may hear from rank 2 first, and tell rank 1 to send before rank 0 has taken both messages of rank 2."""
    calls = [recv(ANY, 1), recv(ANY, 1), send(3, 5), recv(1, 1)]
    others = [recv(3, 6), send(0, 1)], [send(0, 1), send(0, 1), send(3, 5)], [recv(ANY, 5), send(1, 6), recv(ANY, 5)]
    outcome = a_run(of(calls, *others), 0, rank=3)
    assert Chance(outcome.matched).verdict(np.diff(outcome.matched.begins)).word == THIS


def test_a_posted_receive_that_spans_a_cut_may_take_what_another_waits_for_in_it():
    """At the level of messages. A wildcard; and a named one, whose own message comes only after the wildcards."""
    waits = Call("Wait", 3, slots=(1,))
    wild = a_run(of([Call("Irecv", 2, tag=1, slots=(1,)), recv(ANY, 1), waits], [send(0, 1)], [send(0, 1)]), 1, 2)
    named = Call("Irecv", 2, peer=1, tag=2, slots=(1,))
    calls = [recv(ANY, 2), named, recv(ANY, 2), send(1, 9), waits]
    later = a_run(of(calls, [send(0, 2), recv(0, 9), send(0, 2)], [send(0, 2)]), 1, 2, 1)
    for outcome, gaps in ((wild, [2, 1, 0]), (later, [4, 2, 1])):
        assert order(outcome.matched, "message").legal_cut(np.array(gaps)).legal
        assert Chance(outcome.matched).verdict(np.array(gaps)).word == THIS


def test_a_call_that_may_find_nothing_makes_it_depend_on_the_calls_of_the_program():
    outcome = run(of([Call("Iprobe", 1, peer=1, tag=1), recv(1, 1)], [send(0, 1)]))
    verdict = Chance(outcome.matched).verdict(np.diff(outcome.matched.begins))
    assert (verdict.word, verdict.unsure.tolist()) == (SAME, [0])


# Random programs.


def crowd(seed: int) -> Program:
    """All send to rank 0, which takes it now or later, from one of them or from any."""
    random, calls = Random(seed), [list[Call]() for _ in range(3)]
    open_ones: list[int] = []
    for slot in range(random.randrange(4, 10)):
        rank, tag, kind = random.randrange(1, 3), random.randrange(1, 3), random.randrange(10)
        source, any_tag = random.choice([ANY, ANY, rank]), random.choice([tag, tag, tag, ANY])
        if kind < 7:
            calls[rank].append(send(0, tag))
            if kind < 4:
                calls[0].append(recv(source, any_tag))
            else:
                calls[0].append(Call("Irecv", 2, peer=source, tag=any_tag, slots=(slot,)))
                open_ones.append(slot)
        elif kind == 7:
            calls[0].append(send(rank, 9))
            calls[rank].append(recv(0, 9))
        elif kind == 8:
            for mine in calls:
                mine.append(Call("Barrier", 3))
        if open_ones and random.random() < 0.5:
            calls[0].append(Call("Wait", 4, slots=(open_ones.pop(random.randrange(len(open_ones))),)))
    calls[0].append(Call("Waitall", 4, slots=tuple(open_ones)))
    return of(*calls)


@pytest.mark.hypothesis  # in make proof, too, with more of them
def test_what_holds_in_every_run_is_so_in_other_runs():
    """The lemma: a program cut off there ends, with the same messages. And the second verdict: it ends, cleanly."""
    seen = dict.fromkeys((EVERY, SAME, THIS), 0)
    for seed in range(PROGRAMS):
        written = crowd(seed) if seed % 3 else program(seed, wild=0.6)
        outcome = run(written, seed)
        chance = Chance(outcome.matched)
        for gaps in legal_cuts(outcome, "files" if seed % 2 else "message"):
            verdict = chance.verdict(gaps)
            seen[verdict.word] += 1
            if verdict.word == EVERY or (verdict.word == SAME and not len(verdict.unsure)):
                for other in range(RUNS):
                    assert comes_about(written, outcome, gaps, other, verdict.word), (seed, gaps, other)
    assert min(seen.values()) > PROGRAMS / 4, seen


def comes_about(written: Program, outcome: Outcome, gaps: np.ndarray, other: int, word: str) -> bool:
    """Does the program come to this cut in another run, and stop there?"""
    matched = outcome.matched
    calls = [
        written.calls[rank][: matched.record[matched.begins[rank] + gap - 1] + 1] if gap else []
        for rank, gap in enumerate(gaps.tolist())
    ]
    stopped = run(written._replace(calls=calls), other)
    mine, its = messages_in(outcome, gaps), messages_in(stopped, gaps)
    return (
        (stopped.ended and mine == its)
        if word == EVERY
        else (stopped.ended and len(mine) == len(its) and NONE not in sum(its, ()))
    )


def messages_in(outcome: Outcome, gaps: np.ndarray) -> list[tuple[object, ...]]:
    """Of each message of a cut, the ranks and actions that send and receive it. NONE: outside of it."""
    begins, rows = outcome.matched.begins, []
    for ends in outcome.matched.messages[["sent", "received"]].tolist():
        ranks = [int(np.searchsorted(begins, action, "right")) - 1 for action in ends]
        own = [action - int(begins[rank]) for action, rank in zip(ends, ranks, strict=True)]
        inside = [
            (rank, at) if action != NONE and at < gaps[rank] else NONE
            for action, rank, at in zip(ends, ranks, own, strict=True)
        ]
        if inside != [NONE, NONE]:
            rows.append(tuple(inside))
    return sorted(rows, key=str)


def test_the_candidates_are_those_of_the_definition():
    for seed in range(PROGRAMS):
        outcome = run(crowd(seed) if seed % 2 else program(seed, wild=0.6, events=7, cut_short=seed % 5 == 0), seed)
        chance, definition = Chance(outcome.matched), Definition(outcome.matched)
        for gaps in legal_cuts(outcome)[::3]:
            cut: Cut = tuple(gaps.tolist())
            inside = definition.inside(cut)
            expected = {}
            for row, message in enumerate(definition.messages):
                if message["wild_source"] and message["posted"] in inside:
                    candidates = definition.candidates(row, cut)
                    if candidates - {row}:
                        expected[row] = candidates
            verdict = chance.verdict(gaps, most=99)
            assert {doubt.receive: set(doubt.candidates.tolist()) for doubt in verdict.doubts} == expected, (seed, cut)
            assert (verdict.word == EVERY) == (not expected and not len(verdict.unsure)), (seed, cut)


def test_one_pass_judges_all_places_of_a_chain():
    for seed in range(PROGRAMS):
        matched = run(crowd(seed) if seed % 2 else program(seed, wild=0.6), seed).matched
        found, chance = order(matched), Chance(matched)
        limits = chance.limits(found.first)
        for place in range(found.places):
            assert limits.verdict(place) == chance.verdict(found.place(place)).word, (seed, place)


# Vector clocks.


def test_an_action_is_before_another_if_and_only_if_its_clock_is_in_that_one_s():
    """Statement 1 of 2006; and what one search finds is that component of all clocks."""
    for seed in range(PROGRAMS // 4):
        matched = run(program(seed, events=7), seed).matched
        clocks = Definition(matched).clocks([True] * len(matched.messages))
        arcs = causes(matched, np.ones(len(matched.messages), "?"))
        for rank in range(matched.ranks):
            begin, end = matched.begins[rank : rank + 2].tolist()
            if begin < end:
                last = last_before(arcs, np.arange(begin, end))[: matched.actions]
                assert np.where(last == NONE, 0, last - begin + 1).tolist() == [clock[rank] for clock in clocks], seed


def test_actions_are_concurrent_if_and_only_if_neither_clock_knows_the_other():
    """Statement 2 of 2006."""
    for seed in range(PROGRAMS // 4):
        matched = run(program(seed, events=5), seed).matched
        definition = Definition(matched)
        clocks = definition.clocks([True] * len(matched.messages))
        found = causes(matched, np.ones(len(matched.messages), "?"))
        reach = np.eye(found.graph.shape[0], dtype=bool)
        for _ in reach:
            np.logical_or.at(reach, found.source, reach[found.target])
        for one, other in product(range(matched.actions), repeat=2):
            ranks = [definition.rank_of[one], definition.rank_of[other]]
            unknown = [
                clocks[a][rank] < clocks[b][rank] for a, b, rank in zip((other, one), (one, other), ranks, strict=True)
            ]
            assert all(unknown) == (not reach[one, other] and not reach[other, one]), (seed, one, other)


# Two runs.


def test_two_runs_of_a_certain_program_are_alike():
    for seed in range(30):
        written = program(seed, certain=True)
        assert against(run(written, 1).matched, run(written, 2).matched) == []


def test_the_first_difference_of_two_runs_is_named():
    one, other = a_run(COUNTEREXAMPLE, 2, 1, 3, 1), a_run(COUNTEREXAMPLE, 1, 1, 3, 2)
    assert against(one.matched, other.matched) == [
        Difference(0, 0, "Recv at program.py:2; from 2, tag 5, 0 bytes", "Recv at program.py:2; from 1, tag 5, 0 bytes")
    ]


def test_a_run_that_ends_early_differs_where_it_ends():
    long, short = of([send(1, 1), send(1, 2)], [recv(0, 1), recv(0, 2)]), of([send(1, 1)], [recv(0, 1)])
    assert against(run(long).matched, run(short).matched) == [
        Difference(0, 1, "Send at program.py:1; to 1, tag 2, 0 bytes", ""),
        Difference(1, 1, "Recv at program.py:2; from 0, tag 2, 0 bytes", ""),
    ]
