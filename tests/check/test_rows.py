"""Rows of a template: docs/templates.md, the meaning."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from testbed import drawn_templates, rows_by_force
from testbed.drawn_templates import call, members, value
from testbed.sweep import LONG

from safepoint.check import rows
from safepoint.check.call import Call, Value
from safepoint.check.rows import Matcher
from safepoint.check.situations import Situation, places
from safepoint.check.template import EVERY, Argument, Condition, Constant, Expression, Item, Process, Template

TRIES, PARTS = 20_000 if LONG else 1_500, 4


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


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.proof) for part in range(1, PARTS))])
def test_what_is_found_is_what_trying_everything_finds(part: int) -> None:
    for seed in range(part, TRIES, PARTS):
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


def test_what_is_found_does_not_depend_on_the_order_in_which_ranks_are_heard() -> None:
    for seed in range(TRIES // 5):
        draw = random.Random(-1 - seed)
        template, calls = drawn_templates.drawn_template(draw), drawn_templates.drawn_calls(draw, 3)
        order = [rank for rank, some in enumerate(calls) for _ in some]
        told = found(template, calls, order)
        for _ in range(3):
            draw.shuffle(order)
            assert found(template, calls, order) == told, seed


# The templates that users know, each with what is wrong and with what looks like it and is right.


def item(text: str) -> Item:
    """`p1:Wait!`."""
    process, _, functions = text.partition(":")
    number = EVERY if process == "pi" else int(process[1:])
    return Item(number, frozenset(functions.rstrip("!").split("/")), functions.rstrip("!"), functions.endswith("!"))


def argument(text: str) -> Argument:
    function, _, name = text.rstrip(")").partition("(")
    return Argument(EVERY if function == "Fi" else int(function[1:]), name)


def template(size: int | str, *functions: str, where: str = "", bound: dict[int, int] | None = None) -> Template:
    """`F` are numbered as they come; that of `pi` is Fi."""
    made, number = dict[int, Expression](), 0
    for text in functions:
        rows = tuple(tuple(item(one) for one in row.split(" && ")) for row in text.split(" || "))
        every = rows[0][0].process == EVERY
        number += not every
        made[EVERY if every else number] = rows
    return Template("x", "x", size, made, tuple(condition(one) for one in where.split()), bound or {})


def condition(text: str) -> Condition:
    sign = next(sign for sign in ("!=", "=", "<", ">") if sign in text)
    left, right = text.split(sign)
    if right[0] == "p":
        return Condition(argument(left), sign, Process(int(right[1:])), 1)
    if right.startswith("MPI_"):
        return Condition(argument(left), sign, Constant(right), 1)
    return Condition(argument(left), sign, argument(right) if right[0] == "F" else int(right), 1)


def run(given: Template, *calls: Call, ranks: int = 2) -> list[list[tuple[int, int]]]:
    """Rank and number of each call of each situation; -1: it is not called."""
    by_rank = [[one for one in calls if one.rank == rank] for rank in range(ranks)]
    told = found(given, by_rank)
    return [[(rank, cell.number) for cell in one.cells for rank in cell.ranks] for one in told]


REUSED = template(1, "p1:Isend/Irecv", "p1:Wait! && p1:Test!", "p1:Isend/Irecv", where="F1(r)=F2(r) F1(r)=F3(r)")


def started(number: int, variable: int, instance: int, rank: int = 0) -> Call:
    return call(rank, number, "Isend", r=value(("at", variable), ("request", instance)))


def waited(number: int, *instances: int, function: str = "Wait") -> Call:
    return call(0, number, function, r=value(*(("request", one) for one in instances)))


def test_a_request_that_is_used_again_before_it_is_completed() -> None:
    assert run(REUSED, started(0, 1, 7), started(1, 1, 8)) == [[(0, 0), (0, -1), (0, 1)]]
    assert run(REUSED, started(0, 1, 7), waited(1, 7), started(2, 1, 8), waited(3, 8)) == []
    assert run(REUSED, started(0, 1, 7), waited(1, 7, function="Test"), started(2, 1, 8)) == []
    assert run(REUSED, started(0, 1, 7), started(1, 2, 8)) == []


def test_each_use_of_a_request_is_compared_with_the_one_before() -> None:
    """Three times the same variable are two situations, not three."""
    told = run(REUSED, started(0, 1, 7), started(1, 1, 8), started(2, 1, 9))
    assert told == [[(0, 0), (0, -1), (0, 1)], [(0, 1), (0, -1), (0, 2)]]


LEFT = template(1, "p1:Isend/Startall", "p1:Wait/Waitall!", where="F1(r)=F2(r)")


def test_a_call_that_completes_several_requests_excuses_each_that_it_names() -> None:
    assert run(LEFT, started(0, 1, 7), started(1, 2, 8), waited(2, 7, 8, function="Waitall")) == []
    assert run(LEFT, started(0, 1, 7), started(1, 2, 8), waited(2, 8, function="Waitall")) == [[(0, 0), (0, -1)]]


def test_a_call_that_starts_several_requests_opens_a_row_for_each() -> None:
    both = [value(("at", one), ("request", one)) for one in (7, 8)]
    start = call(0, 0, "Startall", r=value(*both[0].here, *both[1].here, each=tuple(both)))
    assert run(LEFT, start, waited(1, 7), waited(2, 8)) == []
    (told,) = found(LEFT, [[start, waited(1, 7)], []])
    assert (told.cells[0].number, told.cells[0].element) == (0, 1)


SENT = template(2, "p1:Send", "p2:Recv!", where="F1(dest)=p2 F2(source)=p1 F1(tag)=F2(tag) F1(comm)=F2(comm)")


def send(rank: int, number: int, dest: int, tag: int = 5) -> Call:
    return call(rank, number, "Send", dest=value(dest), tag=value(tag), comm=value("world"))


def receive(rank: int, number: int, source: int, tag: int = 5) -> Call:
    return call(rank, number, "Recv", source=value(source), tag=value(tag), comm=value("world"))


def test_one_receive_excuses_one_send_whichever_comes_first() -> None:
    assert run(SENT, send(0, 0, 1), receive(1, 0, 0)) == []
    assert run(SENT, send(1, 0, 0), receive(0, 0, 1)) == []
    assert run(SENT, send(0, 0, 1), send(0, 1, 1), receive(1, 0, 0)) == [[(0, 1), (1, -1)]]
    assert run(SENT, send(0, 0, 1), receive(1, 0, 0, tag=6)) == [[(0, 0), (1, -1)]]
    assert run(SENT, send(0, 0, 2), receive(1, 0, 0), ranks=3) == [[(0, 0), (2, -1)]]


def test_a_wildcard_to_which_nothing_came_excuses_what_is_left() -> None:
    anything = value(any=True, names=frozenset(["MPI_ANY_SOURCE"]))
    wild = call(1, 0, "Recv", wild=True, source=anything, tag=value(5), comm=value("world"))
    assert run(SENT, wild, receive(1, 1, 0), send(0, 0, 1), send(0, 1, 1)) == []
    assert run(SENT, wild, receive(1, 1, 0), *(send(0, number, 1) for number in range(3))) == [[(0, 2), (1, -1)]]
    assert run(SENT, wild, send(0, 0, 1, tag=6)) == [[(0, 0), (1, -1)]]


def test_a_wildcard_joins_when_it_has_completed() -> None:
    matcher, wild = (
        Matcher(SENT, 2, members),
        call(1, 0, "Recv", wild=True, source=value(any=True), tag=value(5), comm=value("world")),
    )
    for one in (wild, send(0, 0, 1)):
        assert matcher.feed(one) == []
    wild.wild = False
    wild.arguments = receive(1, 0, 0).arguments
    assert matcher.feed(wild) == [] and matcher.feed(send(0, 1, 1)) == []
    assert [one.cells[0].number for one in matcher.finish()] == [1]


def test_a_wildcard_of_which_nothing_is_asked_joins_once() -> None:
    matcher = Matcher(template(1, "p1:Recv", where="F1(tag)=5"), 1, members)
    wild = call(0, 0, "Recv", wild=True, source=value(any=True), tag=value(5, number=5))
    assert len(matcher.feed(wild)) == 1
    wild.wild = False
    assert matcher.feed(wild) == [] and matcher.finish() == []


LOW = value("low")  # a communicator of ranks 0 and 1
ROOTS = template(2, "p1:Bcast", "p2:Bcast", where="F1(comm)=F2(comm) F1(match)=F2(match) F1(root)!=F2(root)")
ABSENT = template(2, "p1:Bcast", "p2:Bcast!", where="F1(comm)=F2(comm) F1(match)=F2(match)")


def broadcast(rank: int, number: int, root: int, match: int, comm: str = "world") -> Call:
    return call(rank, number, "Bcast", root=value(root, number=root), match=value(match), comm=value(comm))


def test_roots_that_differ_are_told_once_for_each_two_ranks() -> None:
    assert run(ROOTS, *(broadcast(rank, 0, rank // 2, 1) for rank in range(4)), ranks=4) == [
        [(0, 0), (2, 0)], [(0, 0), (3, 0)], [(1, 0), (2, 0)], [(1, 0), (3, 0)],
    ]  # fmt: skip
    assert (
        run(ROOTS, *(broadcast(rank, number, number, number) for rank in range(4) for number in range(3)), ranks=4)
        == []
    )
    assert run(ROOTS, broadcast(0, 0, 0, 1), broadcast(1, 0, 1, 2)) == []


def test_only_members_of_the_communicator_must_take_part() -> None:
    assert run(ABSENT, broadcast(0, 0, 0, 1, "low"), broadcast(1, 0, 0, 1, "low"), ranks=3) == []
    assert run(ABSENT, broadcast(0, 0, 0, 1, "low"), ranks=3) == [[(0, 0), (1, -1)]]
    every = template("MPI_COMM_WORLD", "p1:Bcast", "pi:Bcast!", where="F1(comm)=Fi(comm) F1(match)=Fi(match)")
    assert run(every, *(broadcast(rank, 0, 0, 1) for rank in range(3)), ranks=3) == []
    assert run(every, broadcast(0, 0, 0, 1), ranks=3) == [[(0, 0), (1, -1), (2, -1)]]
    assert run(every, broadcast(0, 0, 0, 1, "low"), ranks=3) == [[(0, 0), (1, -1)]]


def test_a_process_that_is_bound_is_of_that_rank() -> None:
    gathers = template("MPI_COMM_WORLD", "pi:Allreduce", "p1:Gather", bound={1: 0}, where="Fi(match)=Fi(match)")
    reduced = [call(rank, 0, "Allreduce", match=value(1)) for rank in range(3)]
    assert len(run(gathers, *reduced, call(0, 1, "Gather"), ranks=3)) == 1
    assert run(gathers, *reduced, call(1, 1, "Gather"), ranks=3) == []
    assert run(gathers, *reduced[:2], call(0, 1, "Gather"), ranks=3) == []


def test_what_must_not_be_called_before_is_excused_by_one_call_for_all_that_follow() -> None:
    used = template(1, "p1:Init!", "p1:Send")
    assert run(used, call(0, 0, "Init"), call(0, 1, "Send"), call(0, 2, "Send")) == []
    assert run(used, call(0, 0, "Send"), call(0, 1, "Init"), call(0, 2, "Send")) == [[(0, -1), (0, 0)]]


def test_a_call_between_ends_all_rows_that_it_lies_in() -> None:
    between = template(1, "p1:Begin", "p1:Middle!", "p1:End")
    told = run(
        between, *(call(0, number, name) for number, name in enumerate(["Begin", "Begin", "Middle", "End", "End"]))
    )
    assert told == []
    assert run(between, call(0, 0, "Middle"), call(0, 1, "Begin"), call(0, 2, "End"), call(0, 3, "Middle")) == [
        [(0, 1), (0, -1), (0, 2)]
    ]


def test_alternatives() -> None:
    either = template(1, "p1:A || p1:B", "p1:C")
    assert run(either, call(0, 0, "A"), call(0, 1, "B"), call(0, 2, "C")) == [[(0, 0), (0, 2)]]
    both = template(1, "p1:A && p1:B", "p1:C")
    assert run(both, call(0, 0, "B"), call(0, 1, "A"), call(0, 2, "C")) == [[(0, 1), (0, 0), (0, 2)]]
    assert run(both, call(0, 0, "A"), call(0, 1, "C"), call(0, 2, "B")) == []
    missing = template(1, "p1:A", "p1:B! || p1:C!")
    assert run(missing, call(0, 0, "A"), call(0, 1, "B")) == [[(0, 0), (0, -1)]]
    assert run(missing, call(0, 0, "A"), call(0, 1, "B"), call(0, 2, "C")) == []


def test_what_is_absent_opens_no_row_and_joins_none() -> None:
    same = template(2, "p1:A", "p2:B!", where="F1(x)=F2(x)")
    assert run(same, call(0, 0, "A", x=None)) == []
    assert run(template(1, "p1:A", where="F1(x)!=5"), call(0, 0, "A", x=None)) == []
    differ = template(2, "p1:A", "p2:B", where="F1(x)!=F2(x)")
    assert run(differ, call(0, 0, "A", x=None), call(1, 0, "B", x=value(1))) == []
    other = template(1, "p1:A", "p1:B", where="F1(x)=F2(x)")
    assert run(other, call(0, 0, "A", x=value(1)), call(0, 1, "B", x=None)) == []


def test_what_goes_to_one_process_and_comes_from_another_does_not_go_together() -> None:
    back = template(2, "p1:Send", "p1:Recv", "p2:Done", where="F1(dest)=p2 F2(source)=p2")
    calls = [send(0, 0, 2), receive(0, 1, 1), receive(0, 2, 2), call(1, 0, "Done"), call(2, 0, "Done")]
    assert run(back, *calls, ranks=3) == [[(0, 0), (0, 2), (2, 0)]]


def test_a_template_of_one_process_tells_at_once_or_when_the_process_ends() -> None:
    matcher = Matcher(REUSED, 1, members)
    assert [len(matcher.feed(one)) for one in (started(0, 1, 7), started(1, 1, 8))] == [0, 1]
    matcher = Matcher(LEFT, 2, members)
    assert matcher.feed(started(0, 1, 7)) == [] and matcher.ended(1) == []
    assert len(matcher.ended(0)) == 1 and matcher.finish() == []


def test_a_template_of_two_processes_tells_with_the_last_call() -> None:
    matcher = Matcher(ROOTS, 2, members)
    assert [len(matcher.feed(broadcast(rank, 0, rank, 1))) for rank in range(2)] == [0, 1]
    assert matcher.finish() == []


def test_limits_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_FOUND", 3)
    matcher = Matcher(template(1, "p1:A"), 1, members)
    assert sum(len(matcher.feed(call(0, number, "A"))) for number in range(5)) == 3
    assert matcher.remarks == ["stopped after 3 situations"]


@pytest.mark.parametrize("made", [LEFT, SENT])
def test_of_too_many_open_rows_the_oldest_are_kept(made: Template) -> None:
    matcher = Matcher(made, 2, members, most_open=2)
    for number in range(4):
        matcher.feed(started(number, number, number) if made is LEFT else send(0, number, 1))
    matcher.feed(waited(4, 0) if made is LEFT else receive(1, 0, 0))
    assert [one.cells[0].number for one in [*matcher.ended(0), *matcher.finish()]] == [1]
    assert "2 calls were not looked at" in matcher.remarks[0]


def test_what_is_complete_leaves_no_open_rows() -> None:
    """Else a long run would fill the memory."""
    matcher = Matcher(REUSED, 1, members, most_open=2)
    for number in range(0, 40, 2):
        matcher.feed(started(number, 1, number)), matcher.feed(waited(number + 1, number))
    assert matcher.finish() == [] and matcher.remarks == []
    for made, calls in ((ROOTS, 2), (ABSENT, 2), (SENT, 1)):
        matcher = Matcher(made, 2, members, most_open=2 * calls)
        for number in range(20):
            for rank in range(2):
                one = broadcast(rank, number, 0, number)
                matcher.feed(one if made is not SENT else [send(0, number, 1), receive(1, number, 0)][rank])
        assert matcher.finish() == [] and matcher.remarks == []


def test_a_template_that_needs_more_processes_than_there_are_says_so() -> None:
    matcher = Matcher(SENT, 1, members)
    assert matcher.feed(send(0, 0, 0)) == matcher.finish() == []
    assert matcher.remarks == ["not looked for: it needs 2 processes, and the program has 1"]


def test_situations_with_the_same_lines_are_one_place() -> None:
    calls = [[started(number, 1, number, rank) for number in range(3)] for rank in range(2)]
    told = found(REUSED, calls)
    (one,) = places(reversed(told), lambda _: "halo.c:41")
    assert one.first == told[0] and len(one.situations) == 4 and one.ranks == [0, 1]
    assert [len(each.situations) for each in places(told, lambda each: str(each.number))] == [2, 2]


def test_a_root_that_is_that_of_the_first_is_compared_with_all_others() -> None:
    told = run(ROOTS, *(broadcast(rank, 0, rank % 2, 1) for rank in range(3)), ranks=3)
    assert told == [[(0, 0), (1, 0)], [(1, 0), (2, 0)]]


@pytest.mark.parametrize("given", [value(), value(any=True)])
def test_a_rank_that_is_not_known_is_not_another_rank(given: Value) -> None:
    sends = call(0, 0, "Send", dest=given)
    assert run(template(2, "p1:Send", "p2:Done", where="F1(dest)!=p2"), sends, call(1, 0, "Done")) == []
    assert run(template(1, "p1:Send", where="F1(dest)!=p1"), sends) == []
    assert run(template(1, "p1:Send", where="F1(dest)!=p1"), send(0, 0, 1)) == [[(0, 0)]]


def test_a_call_without_its_rank_does_not_take_what_belongs_to_the_next() -> None:
    given = template(2, "p1:Send", "p1:Fin", "p2:Done", where="F1(dest)=p2")
    calls = [call(0, 0, "Send", dest=None), send(0, 1, 1), call(0, 2, "Fin"), call(1, 0, "Done")]
    assert run(given, *calls) == [[(0, 1), (0, 2), (1, 0)]]
