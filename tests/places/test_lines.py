"""Which lines are legal at every visit, and what forbids it."""

from __future__ import annotations

import numpy as np
import pytest
from testbed.ran_mpi import run
from testbed.random_mpi import NULL, Call, Program, program
from testbed.sweep import LONG, many

from safepoint.matching.matched import MARKS, Matched, Site
from safepoint.places.blockers import Blocker
from safepoint.places.graph import LEVELS, order
from safepoint.places.lines import (
    AFTER,
    BEFORE,
    BLOCKED,
    COUNTS_DIFFER,
    HIDE,
    LEGAL,
    NOT_LEGAL,
    TOP,
    Judged,
    Judgement,
    candidates,
    judge,
    nearest,
)
from safepoint.places.oracle import Definition

PROGRAMS = 3_000 if LONG else many(320)
STEPS = 12


def solver(*, across: bool, every: int = 1) -> Program:
    """Two ranks: a Barrier in line 1, `hide` in line 2; rank 0 sends in line 5, rank 1 receives in line 3 of the next
    step, or in line 6 of the same."""
    one, two = [], []
    send, late = Call("Send", 5, peer=1, tag=9), Call("Recv", 3, peer=0, tag=9)
    for step in range(STEPS):
        for calls in (one, two):
            calls.append(Call("Barrier", 1))
            if step % every == 0:
                calls.append(Call("hide", 2))
        if across and step:
            two.append(late)
        one.append(send)
        if not across:
            two.append(late._replace(site=6))
    if across:
        two.append(late)
    return Program([(0, 1)], [one, two], True)


def judged(matched: Matched, level: str = "files", wanted_ns: float = 0.0) -> Judgement:
    return judge(order(matched, level), candidates(matched), wanted_ns)


def the(judgement: Judgement, what: str, site: int) -> Judged:
    (one,) = (one for one in judgement.lines if (one.line.what, one.line.site) == (what, site))
    return one


# A message across the loop.


def test_a_message_across_the_loop_makes_every_later_hide_illegal_and_is_named():
    matched = run(solver(across=True)).matched
    judgement = judged(matched)
    hide, top = the(judgement, HIDE, 2), the(judgement, TOP, 1)
    assert (hide.verdict, hide.legal.tolist()) == (NOT_LEGAL, [True] + [False] * (STEPS - 1))
    assert (top.verdict, int(top.legal.sum())) == (BLOCKED, 1)
    (blocker,) = judgement.blockers
    assert (blocker.what, blocker.sent, blocker.received) == ("message", 5, 3)
    assert len(blocker.messages) == STEPS - 1
    assert (blocker.spoiled, blocker.later) == (2 * (STEPS - 1), 1)
    assert blocker.without == [STEPS, STEPS]


def test_hide_is_legal_once_the_message_is_received_in_its_own_step():
    judgement = judged(run(solver(across=False)).matched)
    assert the(judgement, HIDE, 2).verdict == LEGAL
    assert judgement.blockers == []
    assert judgement.lines[0].verdict == LEGAL


def test_of_two_messages_across_the_loop_none_alone_is_promised_to_help():
    """Both are named, and without one of them the other still spoils every visit."""
    written = solver(across=True)
    calls = [[*mine] for mine in written.calls]
    for mine in calls:
        for at in [at for at, call in enumerate(mine) if call.site in (3, 5)][::-1]:
            mine.insert(at + 1, mine[at]._replace(site=mine[at].site + 3, tag=8))
    judgement = judged(run(written._replace(calls=calls)).matched)
    assert [(one.sent, one.received) for one in judgement.blockers] == [(5, 3), (8, 6)]
    assert [one.without[:2] for one in judgement.blockers] == [[1, 1]] * 2


def test_a_request_open_across_the_loop_blocks_at_the_level_of_files_alone():
    """The receive is posted before, and completed after; its message is sent and received after."""
    calls = [
        [Call("Irecv", 1, peer=1, tag=1, slots=(1,)), Call("hide", 2), Call("Wait", 3, slots=(1,))],
        [Call("hide", 2), Call("Send", 4, peer=0, tag=1)],
    ]
    matched = run(Program([(0, 1)], calls, True)).matched
    assert the(judged(matched, "message"), HIDE, 2).verdict == LEGAL
    files = judged(matched)
    assert the(files, HIDE, 2).verdict == NOT_LEGAL
    assert [(one.what, one.sent, one.received, one.without) for one in files.blockers] == [("message", 4, 3, [1])]


HIDE_2, IBARRIER = Call("hide", 2), Call("Ibarrier", 1, slots=(1,))
HALF_DONE = [[Call("Bcast", 1, root=0), HIDE_2], [HIDE_2, Call("Bcast", 3, root=0)]]
NOT_RECEIVED = [[Call("Send", 1, peer=1, tag=1), HIDE_2], [HIDE_2]]
PROBED = [
    [HIDE_2, Call("Send", 1, peer=1, tag=1)],
    [Call("Probe", 3, peer=0, tag=1), HIDE_2, Call("Recv", 4, peer=0, tag=1)],
]
NOT_AWAITED = [[IBARRIER, HIDE_2, Call("Wait", 3, slots=(1,))]] * 2


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (HALF_DONE, ("collective call", 1, 1)),
        (PROBED, ("message", 1, 4)),
        (NOT_RECEIVED, ("message", 1, 0)),
        (NOT_AWAITED, ("collective call", 1, 1)),
    ],
)
def test_what_else_may_block_is_named_by_its_lines(calls, expected):
    first = judged(run(Program([(0, 1)], calls, True)).matched).blockers[0]
    assert (first.what, first.sent, first.received) == expected


def test_blockers_are_named_by_the_visits_that_they_spoil_most_first():
    """One message lies across one visit, the other across two."""
    short, long = Call("Send", 1, peer=1, tag=1), Call("Send", 3, peer=1, tag=3)
    takes = [Call("Recv", call.site + 3, peer=0, tag=call.tag) for call in (short, long)]
    calls = [[short, HIDE_2, long, HIDE_2, HIDE_2], [HIDE_2, takes[0], HIDE_2, HIDE_2, takes[1]]]
    judgement = judged(run(Program([(0, 1)], calls, True)).matched)
    assert [(one.sent, one.spoiled, one.later, one.without) for one in judgement.blockers] == [
        (3, 2, 2, [2]),
        (1, 1, 1, [1]),
    ]


# Random programs.


def test_each_visit_is_legal_if_and_only_if_its_cut_is():
    for seed in range(PROGRAMS):
        matched = run(program(seed, certain=seed % 2 == 0, events=9), seed).matched
        definition, level = Definition(matched), LEVELS[seed % 3]
        for one in judged(matched, level).lines:
            cuts = [tuple(gaps) for gaps in one.gaps.tolist()]
            assert one.legal.tolist() == [definition.legal(cut, level) for cut in cuts], (seed, one)
            counts = [int((one.line.rank == rank).sum()) for rank in range(matched.ranks)]
            assert (len(cuts), one.visits) == (min(counts), max(counts))
            assert (one.verdict == COUNTS_DIFFER) == (len(set(counts)) > 1)


def test_what_is_legal_without_a_blocker_is_what_is_legal_in_a_trace_without_it():
    told = 0
    for seed in range(PROGRAMS):
        matched = run(program(seed, certain=True, events=9), seed).matched
        judgement = judged(matched)
        for blocker in judgement.blockers:
            if blocker.what == "message":
                told += 1
                again = judge(
                    order(without(matched, blocker)), [judgement.lines[number].line for number in judgement.asked]
                )
                legal = {id(one.line): int(one.legal.sum()) for one in again.lines}
                expected = [legal[id(judgement.lines[number].line)] for number in judgement.asked]
                assert blocker.without == expected, (seed, blocker)
    assert told > PROGRAMS / 4


def without(matched: Matched, blocker: Blocker) -> Matched:
    """The trace, if these messages and their requests bound nothing."""
    gone = matched.messages[blocker.messages]
    kept = ~np.isin(matched.group, gone["group"])
    requests = matched.requests[~np.isin(matched.requests[:, 0], np.concatenate([gone["sent"], gone["posted"]]))]
    arcs = matched.arcs[~np.isin(matched.arcs[:, 1], gone["sent"])]
    never = matched.never[~np.isin(matched.never, gone["sent"])]
    return matched._replace(
        member=matched.member[kept], group=matched.group[kept], requests=requests, arcs=arcs, never=never
    )


# Numbers.


def marked(times: list[list[int]]) -> Matched:
    """`hide` of each rank at these times, in ns; no action at all."""
    matched = run(Program([tuple(range(len(times)))], [[] for _ in times], True)).matched
    rows = [(rank, 0, 1, time, time, 0, True) for rank, mine in enumerate(times) for time in mine]
    return matched._replace(marks=np.array(rows, MARKS))


def test_waiting_is_from_the_first_rank_to_the_last_and_the_interval_is_between_visits():
    (one,) = judged(marked([[0, 1_000, 2_000], [100, 1_300, 2_000]])).lines
    assert one.wait_mean_ns == pytest.approx(400 / 3)
    assert one.wait_p95_ns == pytest.approx(np.percentile([100, 300, 0], 95))
    assert one.interval_ns == pytest.approx((2_000 - 100) / 2)


def test_every_so_manieth_visit_keeps_the_interval_at_most_as_wanted():
    matched = marked([[0, 1_000, 2_000], [0, 1_000, 2_000]])
    assert [judged(matched, wanted_ns=wanted).lines[0].every for wanted in (0, 500, 1_000, 3_999)] == [1, 1, 1, 3]


def test_lines_that_some_ranks_pass_less_often_are_not_recommended():
    (one,) = judged(marked([[0, 1_000], [0]])).lines
    assert (one.verdict, one.visits, one.legal.tolist(), one.counts.tolist()) == (COUNTS_DIFFER, 2, [True], [2, 1])


def test_the_order_is_legal_then_often_enough_then_least_waiting():
    matched = run(solver(across=False, every=3)).matched
    lines = judged(matched).lines
    legal = [one.verdict == LEGAL for one in lines]
    assert legal == sorted(legal, reverse=True)
    waits = [one.wait_mean_ns for one in lines if one.verdict == LEGAL]
    assert waits == sorted(waits)


def test_a_line_that_comes_too_seldom_gives_way_to_one_that_waits_longer():
    often, seldom = marked([[0, 1_000, 2_000], [500, 1_500, 2_500]]), marked([[0, 5_000], [0, 5_000]])
    seldom.marks["site"] = 2
    both = often._replace(marks=np.concatenate([often.marks, seldom.marks]))
    assert [judged(both, wanted_ns=wanted).lines[0].line.site for wanted in (0, 2_000)] == [2, 1]


# Candidates.


def test_each_call_is_a_line_before_and_after_it():
    matched = run(solver(across=False)).matched
    found = {(line.what, line.site): line for line in candidates(matched)}
    assert set(found) == {(HIDE, 2), (TOP, 1), *((what, site) for what in (BEFORE, AFTER) for site in (1, 5, 6))}
    barrier = found[AFTER, 1]
    assert barrier.function == "Barrier"
    assert barrier.gap.tolist() == [1 + 2 * step for step in range(STEPS)] * 2
    assert np.array_equal(barrier.time, matched.leave[matched.site == 1])
    assert np.array_equal(found[BEFORE, 1].time, matched.enter[matched.site == 1])


def test_the_top_of_a_loop_is_where_the_line_falls_in_one_function():
    """Rank 1 branches: its loop begins in line 3. A call of another function in between is no new loop."""
    sites = [Site("", 0, ""), *(Site("a.py", line, "main") for line in range(1, 8)), Site("a.py", 1, "exchange")]
    loops = [[Call("Send", 2, peer=1, tag=1), Call("Recv", 8, peer=1, tag=1), Call("Barrier", 5)],
             [Call("Recv", 3, peer=0, tag=1), Call("Send", 8, peer=0, tag=1), Call("Barrier", 5)]]  # fmt: skip
    matched = run(
        Program([(0, 1)], [[Call("Barrier", 1), *loop * 4, Call("Barrier", 7)] for loop in loops], True)
    ).matched
    (top,) = (line for line in candidates(matched._replace(sites=sites)) if line.what == TOP)
    assert (top.site, top.gap.tolist()) == (2, [1, 4, 7, 10] * 2)


def test_a_call_that_never_returned_has_no_line_after_it():
    matched = run(Program([(0, 1)], [[Call("Recv", 1, peer=1, tag=1)], []], True)).matched
    assert [line.what for line in candidates(matched)] == [BEFORE]


# A moment.


def test_the_nearest_legal_cut_is_that_of_which_the_farthest_rank_is_nearest():
    for seed in range(PROGRAMS):
        matched = run(program(seed, events=5, certain=seed % 2 == 0, cut_short=seed % 3 == 0), seed).matched
        if not 1 < np.prod(np.diff(matched.begins) + 1) <= 300:
            continue
        legal = list(Definition(matched).algorithm_1("files"))
        for time in (0, int(np.median(matched.enter)), int(matched.leave.max()) + 5):
            found = nearest(order(matched), time)
            assert (found is None) == (not legal)
            if found is not None:
                assert tuple(found.gaps.tolist()) in legal
                assert found.off_ns == off(matched, found.gaps.tolist(), time)
                assert found.off_ns == min(off(matched, list(cut), time) for cut in legal), (seed, time)


def test_no_moment_is_after_a_call_that_never_returned():
    calls = [[Call("Send", 1, peer=NULL, tag=1), Call("Recv", 1, peer=1, tag=1)], []]
    matched = run(Program([(0, 1)], calls, True)).matched
    found = nearest(order(matched._replace(enter=np.array([0, 110]), leave=np.array([100, 0]))), 50)
    assert (found.gaps.tolist(), found.off_ns) == ([0, 0], 50)


def off(matched: Matched, cut: list[int], time: int) -> int:
    far = [0]
    for begin, end, gap in zip(matched.begins, matched.begins[1:], cut, strict=False):
        if gap:
            far.append(int(matched.leave[begin + gap - 1] or matched.enter[begin + gap - 1]) - time)
        if begin + gap < end:
            far.append(time - int(matched.enter[begin + gap]))
    return max(far)
