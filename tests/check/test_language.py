"""The language of templates: what it accepts, what it refuses, and with which words at which place."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from testbed.checking import NOT_FREED, REUSED
from testbed.sweep import LONG, many, some_of

from safepoint.check import language, vocabulary
from safepoint.check.language import faults, load, parse, read
from safepoint.check.sentences import MOST_FAULTS
from safepoint.check.template import ATTRIBUTES, EVERY, Argument, Condition, Constant, Item, Process, Template
from safepoint.errors import UsageError
from safepoint.trace import roles
from safepoint.trace.signatures import HANDLES, signatures

START = "Name=x\n1block\nN=2\n2block\n"  # the next line is line 5
WHERE = Path("t.tpl")


def template(text: str) -> Template:
    found, wrong = parse(text, WHERE)
    assert not wrong, "\n".join(map(str, wrong))
    assert found is not None
    return found


def told(text: str) -> list[str]:
    """`line:column: text` of each fault; a text has faults or is a template."""
    found, wrong = parse(text, WHERE)
    assert (found is None) == bool(wrong)
    return [str(one).removeprefix("t.tpl:") for one in wrong]


def called(process: int, *functions: str, text: str = "", absent: bool = False) -> Item:
    return Item(process, frozenset(functions), text or functions[0], absent)


IPTP = called(1, "Isend", "Ibsend", "Issend", "Irsend", "Irecv", text="IPTP")


# The templates of the source.


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_first_template_of_the_source_is_read_as_printed(ends: str, mark: str) -> None:
    assert template(mark + REUSED.replace("\n", ends)) == Template(
        id="t",
        name="Repeated using of active request",
        size=1,
        functions={
            1: ((IPTP,),),
            2: ((called(1, "Wait", absent=True), called(1, "Test", absent=True)),),
            3: ((IPTP,),),
        },
        conditions=(
            Condition(Argument(1, 7), "=", Argument(2, 1), 9),
            Condition(Argument(1, 7), "=", Argument(3, 7), 10),
        ),
        path=WHERE,
        lines={1: 5, 2: 6, 3: 7},
    )


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_second_template_of_the_source_is_read_as_printed(ends: str) -> None:
    assert template(NOT_FREED.replace("\n", ends)) == Template(
        id="t",
        name="Derived datatype is not freed",
        size=1,
        functions={1: ((called(1, "Type_contiguous"),),), 2: ((called(1, "Type_free", absent=True),),)},
        conditions=(Condition(Argument(1, 3), "=", Argument(2, 1), 8),),
        path=WHERE,
        lines={1: 5, 2: 6},
    )


def test_a_template_without_a_last_line_end_is_read() -> None:
    assert template(NOT_FREED.rstrip("\n")) == template(NOT_FREED)


# Each production.


def test_the_head_has_kind_expect_and_text() -> None:
    found = template("Name=a # b\nKind=note Expect=3\nText=It = so # too\n1block N=1 2block F1=p1:Send")
    assert (found.name, found.kind, found.expect, found.text) == ("a # b", "note", 3, "It = so # too")


def test_each_kind_and_each_expectation_is_read() -> None:
    for kind in ("error", "warning", "note"):
        assert template(START.replace("1block", f"Kind={kind}\n1block") + "F1=p1:Send").kind == kind
    for word, expect in (("none", "none"), ("some", "some"), ("0", 0), ("12", 12)):
        assert template(START.replace("1block", f"Expect={word}\n1block") + "F1=p1:Send").expect == expect


def test_the_comment_before_a_template_is_its_text() -> None:
    text = "# What it means.\n#\n#   an example\n\n# The end.\n" + START + "F1=p1:Send # no part of it\n# nor this\n"
    assert template(text).text == "What it means.\n\n  an example\n\nThe end."
    assert template(text.replace("1block", "Text=Short.\n1block")).text == "Short."
    assert template(START + "F1=p1:Send").text == ""


@pytest.mark.parametrize(
    ("words", "size", "bound"),
    [
        ("N=3", 3, {}),
        ("N=2 p1=0 p2=5", 2, {1: 0, 2: 5}),
        ("N = n( MPI_COMM_WORLD )\np1 = 0", "MPI_COMM_WORLD", {1: 0}),
        ("N=n(mpi_comm_world)", "MPI_COMM_WORLD", {}),
        ("N=n(MPI_COMM_SELF)", 1, {}),
    ],
)
def test_processes_are_counted_or_those_of_a_communicator_and_may_have_ranks(
    words: str, size: int | str, bound: dict[int, int]
) -> None:
    found = template(f"Name=x\n1block\n{words}\n2block\nF1=p1:Send")
    assert (found.size, found.bound) == (size, bound)


def test_and_binds_before_or_and_negation_before_both() -> None:
    found = template(START + "F1=p1:Send && p2:!Recv || Probe!\nF2=p1:Bcast || p2:Barrier && Wait")
    assert found.functions == {
        1: ((called(1, "Send"), called(2, "Recv", absent=True)), (called(2, "Probe", absent=True),)),
        2: ((called(1, "Bcast"),), (called(2, "Barrier"), called(2, "Wait"))),
    }


def test_every_process_is_written_pi_and_its_function_fi() -> None:
    found = template(START.replace("N=2", "N=n(MPI_COMM_WORLD)") + "F1=p1:Bcast\nFi=pi:Bcast!\n3block\nFi(comm)=F1(5)")
    assert found.functions[EVERY] == ((called(EVERY, "Bcast", absent=True),),)
    assert found.conditions == (Condition(Argument(EVERY, "comm"), "=", Argument(1, 5), 8),)


@pytest.mark.parametrize("sign", ["=", "!=", "<", ">"])
@pytest.mark.parametrize(
    ("word", "value"),
    [("7", 7), ("-7", -7), ("- 7", -7), ("p2", Process(2)), ("mpi_proc_null", Constant("MPI_PROC_NULL")),
     ("F2(4)", Argument(2, 4)), ("F2 ( Source )", Argument(2, "source"))],
)  # fmt: skip
def test_a_condition_compares_an_argument_with_each_kind_of_value(sign: str, word: str, value: object) -> None:
    found = template(f"{START}F1=p1:Send F2=p2:Recv 3block F1(dest){sign}{word} F1(4) {sign}\n {word}")
    assert found.conditions == (
        Condition(Argument(1, "dest"), sign, value, 5),  # type: ignore[arg-type]
        Condition(Argument(1, 4), sign, value, 5),  # type: ignore[arg-type]
    )


def test_functions_need_not_come_in_their_order_nor_without_gaps() -> None:
    found = template(START + "F7=p1:Send\nF3=p1:Recv")
    assert (list(found.functions), found.lines) == ([3, 7], {3: 6, 7: 5})


def test_blanks_tabs_comments_and_case_change_nothing() -> None:
    dense = template(
        "Name=x\n1block\nN=2 p1=0\n2block\nF1=p1:Isend F2=p2:Wait!&&Test! 3block F1(dest)=p2 F1(7)!=F1(request)"
    )
    loose = template(
        "\n# say\n\nNAME \t=  x  \n# more\n 1BLOCK # one\n\tn\t=\n2 P1 = 0\n2 block\n\n"
        "f1 = p1 : mpi_ISEND_c # it\nF2= p2\n:\tWAIT !\n  && # or\n test! 3block\n"
        "F1 ( DEST )\n =\tp2\nF1(7) != f1(Request)"
    )
    assert loose.text == "say"
    assert [loose.functions[number][0][0].functions for number in (1, 2)] == [{"Isend"}, {"Wait"}]
    assert loose.conditions == tuple(one._replace(line=at) for one, at in zip(dense.conditions, (16, 18), strict=True))
    assert (loose.name, loose.size, loose.bound) == (dense.name, dense.size, dense.bound)


def test_a_function_may_be_written_as_people_write_it() -> None:
    for word in ("Send", "send", "MPI_Send", "mpi_send_c", "MPI_SEND", "Send_c"):
        assert template(START + f"F1=p1:{word}").functions[1] == ((called(1, "Send", text=word),),)


def test_hide_is_a_function_and_has_a_step() -> None:
    found = template(START + "F1=p1:hide\n3block\nF1(step)>100")
    assert found.conditions == (Condition(Argument(1, "step"), ">", 100, 7),)


# Macros.


MACROS = {
    "Send_any": "Send Bsend Ssend Rsend",
    "Isend_any": "Isend Ibsend Issend Irsend",
    "Recv_any": "Recv Mrecv",
    "IRecv_any": "Irecv Imrecv",
    "PTP": "Send Bsend Ssend Rsend Recv",
    "iptp": "Isend Ibsend Issend Irsend Irecv",
    "Complete_any": "Wait Waitall Waitany Waitsome Test Testall Testany Testsome Request_free",
    "PTP_init": "Send_init Bsend_init Ssend_init Rsend_init Psend_init Recv_init Precv_init",
}


def test_a_macro_has_these_members() -> None:
    assert {macro: vocabulary.functions(macro) for macro in MACROS} == {
        macro: {*members.split()} for macro, members in MACROS.items()
    }


def test_macros_follow_from_the_table_of_roles() -> None:
    """`Coll` has all collective calls, and what makes an object is in the macro of the objects."""
    known = signatures()
    assert {name for name, role in roles.ROLES.items() if role.kind == "coll"} & {*known} == vocabulary.functions(
        "Coll"
    )
    assert {"Ibarrier", "Ineighbor_alltoallw"} <= (vocabulary.functions("ICOLL") or set())
    assert {"Type_dup", "Type_create_struct"} <= (vocabulary.functions("Type_new") or set())
    assert {"Comm_dup", "Comm_idup", "Cart_sub", "Comm_spawn"} <= (vocabulary.functions("Comm_new") or set())
    assert {"Comm_group", "Group_union"} <= (vocabulary.functions("Group_new") or set())
    assert "Comm_get_parent" not in (vocabulary.functions("Comm_new") or set())  # it makes none


def test_a_new_function_of_a_known_kind_is_in_its_macro(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in `roles`, and one with its arguments."""
    both = (vocabulary.macros, vocabulary._functions)
    for one in both:
        one.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setitem(roles.ROLES, "Isend_soon", roles.Role("Isend_soon", "isend", ()))
            patch.setitem(signatures(), "Isend_soon", signatures()["Isend"]._replace(name="Isend_soon"))
            assert "Isend_soon" in (vocabulary.functions("IPTP") or set())
            assert vocabulary.functions("mpi_isend_SOON") == {"Isend_soon"}
    finally:
        for one in both:
            one.cache_clear()


def test_every_function_of_the_standard_is_known_and_every_argument_by_number_and_name() -> None:
    for name, signature in signatures().items():
        names = [one.name for one in signature.parameters if one.name not in ("", *ATTRIBUTES)]
        words = [*range(1, len(signature.parameters) + 1), *names]
        lines = [f"F1({word})=F1({word})" for word in words]
        text = "\n".join([f"{START}F1=p1:{name}", "3block" if lines else "", *lines])
        assert len(template(text).conditions) == len(words)


def test_a_number_of_a_receive_is_the_argument_that_it_was_in_2014() -> None:
    """`Recv_any` has Mrecv, whose fifth argument is no tag."""
    found = template(START + "F1=p1:Recv_any\nF2=p1:IRecv_any\n3block\nF1(5)=1\nF1(3)=MPI_INT\nF2(7)=F2(request)")
    assert [one.left.name for one in found.conditions] == ["tag", 3, "request"]


def test_a_request_of_an_array_has_the_name_request() -> None:
    found = template(START + "F1=p1:Isend\nF2=p1:Complete_any!\n3block\nF1(request)=F2(request)")
    assert found.conditions[0].right == Argument(2, "request")


def test_each_attribute_may_be_named() -> None:
    for name in ATTRIBUTES:
        function = "hide" if name == "step" else "Comm_dup"
        found = template(f"{START}F1=p1:{function}\n3block\nF1({name})=F1({name})")
        assert found.conditions[0].left.name == name


# Faults: each with its line and column.

# Each text, ⏎ for the end of a line, and what is told of it.
MISTAKES = """\
F1=p1:Irecieve → 5:7: no function of MPI is named 'Irecieve'; Irecv?
F1=p1:Xyzzyx → 5:7: no function of MPI is named 'Xyzzyx'
F1=p1:Send ⏎ F2=p3:Recv → 6:4: F2 uses p3, but N=2
F1=p1:Isend ⏎ 3block ⏎ F1(8)=1 → 7:4: Isend has 7 arguments, not 8
F1=p1:Barrier ⏎ 3block ⏎ F1(2)=1 → 7:4: Barrier has 1 argument, not 2
F1=p1:Isend ⏎ 3block ⏎ F1(0)=1 → 7:4: arguments are numbered from 1
F1=p1:Isend ⏎ 3block ⏎ F1(dst)=1 → 7:4: Isend has no argument 'dst'; dest?
F1=p1:Isend ⏎ 3block ⏎ F1(root)=1 → 7:4: Isend has no argument 'root'
F1=p1:Coll ⏎ 3block ⏎ F1(root)=1
    7:4: Allgather, Allgatherv, Allreduce and 13 more have no argument 'root', others of F1 have
F1=p1:PTP || Sendrecv_replace ⏎ 3block ⏎ F1(6)=MPI_COMM_WORLD
    7:4: argument 6 is comm in Bsend or source in Sendrecv_replace; write its name: F1(comm)
F1=p1:ICOLL ⏎ 3block ⏎ F1(9)=MPI_REQUEST_NULL → 7:4: Ibarrier has 2 arguments, not 9; write its name: F1(request)
F1=p1:hide ⏎ 3block ⏎ F1(1)=1 → 7:4: hide has 0 arguments, not 1; write F1(step)
F1=p1:Send ⏎ 3block ⏎ F1(step)=1 → 7:4: Send has no argument 'step'
F1=p1:Isend ⏎ 3block ⏎ F1(1)=F3(1) ⏎ F4(1)=1
    7:7: F3 is not defined
    8:1: F4 is not defined
F1=p1:Isend ⏎ F1=p1:Wait → 6:1: F1 is defined twice, first in line 5
F1=p1:Wait! ⏎ F2=p2:!Test
    5:1: all functions are negated, expected one that is called: nothing would begin a situation
F1=p1:Isend ⏎ 3block ⏎ F1(comm)<MPI_COMM_WORLD
    7:4: F1(comm) is a communicator, expected a number beside <: only = and != compare it
F1=p1:Isend ⏎ 3block ⏎ F1(tag)>F1(7) → 7:9: F1(7) is a request, expected a number beside >: only = and != compare it
F1=p1:Isend ⏎ 3block ⏎ F1(tag)>MPI_INT
    7:9: MPI_INT is a datatype, expected a number beside >: only = and != compare it
F1=p1:Isend ⏎ 3block ⏎ F1(6)=F1(7) → 7:7: F1(6) is a communicator, F1(7) is a request: they are never equal
F1=p1:Isend ⏎ 3block ⏎ F1(comm)!=p1 → 7:11: F1(comm) is a communicator, p1 is a number: they are never equal
F1=p1:Isend ⏎ 3block ⏎ F1(3)=MPI_COMM_NULL
    7:7: F1(3) is a datatype, MPI_COMM_NULL is a communicator: they are never equal
F1=p1:Isend ⏎ 3block ⏎ F1(dest)=MPI_PROC_NUL → 7:10: no constant of MPI is named 'MPI_PROC_NUL'; MPI_PROC_NULL?
F1=p1:Recv ⏎ 3block ⏎ F1(tag)=ANY_TAG → 7:9: no constant of MPI is named 'ANY_TAG'; MPI_ANY_TAG?
F1=p1:Gather ⏎ 3block ⏎ F1(tag)=ANY_TAG
    7:4: Gather has no argument 'tag'
    7:9: no constant of MPI is named 'ANY_TAG'; MPI_ANY_TAG?
F1=p1:Recv ⏎ 3block ⏎ F1(tag)=MPI_Q → 7:9: no constant of MPI is named 'MPI_Q'
F1=p1:Isend ⏎ 3block ⏎ F1(dest)=p3 → 7:10: p3 is compared, but N=2
F1=p1:Isend ⏎ 3block ⏎ F1(dest)=pi → 7:10: found pi, expected one process, such as p1
F1=p1:Isend ⏎ F2=p1:Wait! ⏎ 3block ⏎ F1(7)!=F2(1) → 8:8: F2 is not called, so F2(1) can only be compared with =
F1=p1:Isend ⏎ F2=p1:Wait! ⏎ F3=p1:Test! ⏎ 3block ⏎ F2(1)=F3(1)
    9:7: F2 and F3 are both not called: there is nothing to compare
F1=p1:Send ⏎ F2=p1:!Wait! → 6:12: 'Wait' is negated twice
F1=p1:Send ⏎ F2=!p1:Wait → 6:5: found 'p1', expected the process before the '!': p1:!…
F1=Isend → 5:4: F1 says no process, expected one such as p1:Isend
F1=p0:Isend → 5:4: p0: processes are numbered from 1
F0=p1:Isend → 5:1: F0: functions are numbered from 1
F1=pi:Isend → 5:4: pi is every process: write Fi=pi:Isend
Fi=p1:Isend → 5:4: Fi is of every process: write pi:Isend
F1=p1:Isend & Irecv → 5:13: found '&'; write &&
F1=p1:Isend or Irecv → 5:13: found 'or'; write ||
F1=p1:Isend ⏎ 3block ⏎ F1(tag)==1 → 7:8: found '=='; write =
F1=p1:Isend ⏎ 3block ⏎ F1(tag)<=1 → 7:8: found '<='; write < with the next number
F1= ⏎ F2=p1:Isend → 6:1: found 'F2', expected a function of MPI, p with its number or '!'
F1=p1:Isend ⏎ 3block ⏎ F1(tag)=
    7:9: found the end of the file, expected a constant such as MPI_ANY_TAG, a number, F with its number, p with
        its number or '-'
F1=p1 Isend → 5:7: found 'Isend', expected ':'
F1=p1:Isend ⏎ 3block ⏎ F1()=1 → 7:4: found ')', expected the name of an argument or a number
F1=p1:12abc → 5:7: found '12abc', expected a function of MPI or '!'
F1=p1:Isend ⏎ what is this ⏎ F2=p1:Wait → 6:1: found 'what', expected '&&', '||', '!' or the next statement
F1=p1:Isend ⏎ F2=p1:\x1b[31m → 6:7: found '\\x1b', expected a function of MPI or '!'
F1=p1:Isend ⏎ 2block → 6:1: 2block is there twice, first in line 4
F1=p1:Isend ⏎ 4block → 6:1: found '4block', expected 1block, 2block or 3block
F1=p1:Isend ⏎ 3block ⏎ F1(1)=0 ⏎ F2=p1:Wait → 8:1: F1=… stands in the 2block, not in the 3block
F1=p1:Isend ⏎ F1(tag)=1 ⏎ F1(comm)=MPI_COMM_NULL → 6:1: found 'F1', expected 3block before it
"""
IN_THE_HEAD = """\
1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 1:1: expected Name=… in the first line
Name x ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send
    1:1: found 'Name', expected a statement: Name=…, 1block, N=…, p1=…, F1=… or F1(…)=…
    1:1: expected Name=… in the first line
Name= ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 1:1: Name is empty
Name=x ⏎ Name=y ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 2:1: Name is given twice
Text=y ⏎ Name=x ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 1:1: found Text, expected Name first
Name=x ⏎ Kind=fatal ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 2:6: found 'fatal', expected error, warning or note
Name=x ⏎ Expect=much ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 2:8: found 'much', expected none, some or a number
Name=x ⏎ Kind=note Kind=error ⏎ 1block ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 2:11: Kind is given twice
Name=x ⏎ 1block ⏎ Kind=note ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send
    3:1: Name, Kind, Expect and Text stand before the 1block, not in the 1block
Name=x ⏎ 1block ⏎ 2block ⏎ F1=p1:Send → 2:1: expected N=… in the 1block: how many processes take part
Name=x ⏎ 1block ⏎ N=0 ⏎ 2block ⏎ F1=p1:Send → 3:3: N is 0, expected at least one process
Name=x ⏎ 1block ⏎ N=two ⏎ 2block ⏎ F1=p1:Send → 3:3: found 'two', expected a number or n(
Name=x ⏎ 1block ⏎ N=1 N=2 ⏎ 2block ⏎ F1=p1:Send → 3:5: N is given twice
Name=x ⏎ 1block ⏎ N=n(MPI_COMM_NULL) ⏎ 2block ⏎ F1=p1:Send
    3:5: found 'MPI_COMM_NULL', expected MPI_COMM_WORLD: others have no members yet
Name=x ⏎ 1block ⏎ N=1 ⏎ p1=0 ⏎ p1=1 ⏎ 2block ⏎ F1=p1:Send → 5:1: p1 is given twice
Name=x ⏎ 1block ⏎ N=2 ⏎ p1=0 ⏎ p2=0 ⏎ 2block ⏎ F1=p1:Send → 5:1: p1 is rank 0 already: write p1 for both
Name=x ⏎ 1block ⏎ N=1 ⏎ p1=-3 ⏎ 2block ⏎ F1=p1:Send → 4:4: rank -3 is negative, expected a rank of MPI_COMM_WORLD
Name=x ⏎ 1block ⏎ N=1 ⏎ p2=0 ⏎ 2block ⏎ F1=p1:Send → 4:1: p2 has a rank, but N=1
Name=x ⏎ 1block ⏎ N=1 ⏎ pi=0 ⏎ 2block ⏎ F1=p1:Send → 4:1: pi is every process, and has no rank of its own
Name=x ⏎ N=1 ⏎ 2block ⏎ F1=p1:Send → 2:1: found 'N', expected 1block before it
Name=x ⏎ 1block ⏎ N=1 ⏎ F1=p1:Send ⏎ F2=p1:Recv → 4:1: found 'F1', expected 2block before it
Name=x ⏎ 1block ⏎ N=1 ⏎ → 4:1: found the end of the file, expected 2block
Name=x ⏎ 2block ⏎ F1=p1:Send ⏎ 1block ⏎ N=1 → 4:1: 1block comes after 2block, expected the order 1, 2, 3
"""


def cases(table: str, before: str = "") -> dict[str, tuple[str, list[str]]]:
    """What each text of a table, behind this beginning, is told."""
    rows = re.findall(r"^(\S.*?)(?: → (.*))?\n((?: {4}.*\n)*)", table.replace("\n        ", " "), re.M)
    return {
        text: (before + re.sub(" ⏎ ?", "\n", text), [one] if one else [line[4:] for line in more.splitlines()])
        for text, one, more in rows
    }


WRONG = {
    **cases(MISTAKES, START),
    **cases(IN_THE_HEAD),
    "no function": (START, ["4:1: expected a function in the 2block, such as F1=p1:Isend"]),
    "a huge number": (f"{START}F1=p1:Isend\n3block\nF1(tag)={'9' * 50}", [f"7:9: '{'9' * 40}…' is too large a number"]),
    "nothing but blanks": (" \n\t\n", ["1:1: the file is empty, expected Name=…"]),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_told_at_its_place(mistake: str) -> None:
    text, expected = WRONG[mistake]
    assert told(text) == expected


def test_twenty_mistakes_of_one_file_are_told_at_once() -> None:
    """docs/templates.md: each at its line and column, none because of another."""
    text = """# A template with a mistake in nearly every line.
Name=Bad
Kind=bad Expect=often
1block
N=2 p1=-1 p3=0
2block
F1=p1:Irecieve
F2=p1:Isend && p4:Wait
F2=p1:Isend
F3=p2:Wait! & Test!
F4=p1:Isend
F5=Barrier
F6=p1:Coll
F7=p1:Wait!
3block
F4(8)=1
F4(dst)=1
F6(root)=0
F6(4)=1
F9(1)=2
F4(tag)=MPI_ANY_TGA
F4(comm)<3
F4(dest)=p3
F4(7)!=F7(1)
F4(6)=F4(3)
F4(1)=
"""
    wrong = told(text)
    assert [tuple(map(int, one.split(":")[:2])) for one in wrong] == [
        (3, 6), (3, 17), (5, 8), (5, 11), (7, 7), (8, 16), (9, 1), (10, 13), (12, 4), (16, 4), (17, 4), (18, 4),
        (19, 4), (20, 1), (21, 9), (22, 4), (23, 10), (24, 8), (25, 7), (27, 1),
    ]  # fmt: skip


def test_a_function_that_is_wrong_makes_no_fault_of_what_names_it() -> None:
    assert len(told(START + "F1=p1:Isen\nF2=p1 Wait\nF3=p1:Send F4=:\n3block\nF1(1)=F2(1)\nF4(1)=F3(1)")) == 3


def test_a_file_of_faults_alone_is_not_told_to_its_end() -> None:
    wrong = told(START + "F1=p1:Isend\n3block\n" + "F2(1)=1\n" * 5000)
    assert len(wrong) == MOST_FAULTS + 1
    assert wrong[-1] == f"{7 + MOST_FAULTS}:1: the first {MOST_FAULTS} faults are told, not the rest"


# Anything at all.

RANKS = st.integers(0, 7)
WORDS = st.sampled_from(["Isend", "MPI_Irecv", "iptp", "Send_any", "Barrier", "Coll", "Type_new", "hide", "mpi_wait_c"])
SIGNS = st.sampled_from(["=", "!=", "<", ">"])
LINES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


@st.composite
def items(draw: st.DrawFn, processes: list[int]) -> Item:
    word = draw(WORDS)
    functions = vocabulary.functions(word)
    assert functions is not None
    return Item(draw(st.sampled_from(processes)), functions, word, draw(st.booleans()))


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """Those that make sense: numbers alone are compared, by attributes that every function has."""
    size = draw(st.one_of(st.integers(1, 4), st.just("MPI_COMM_WORLD")))
    most = size if isinstance(size, int) else 4
    processes = [*range(1, most + 1)]
    every = isinstance(size, str) or draw(st.booleans())
    numbers = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4, unique=True))
    functions = {}
    for number in sorted(numbers) if not every else [EVERY, *sorted(numbers)]:
        one = items([EVERY] if number == EVERY else processes)
        row = st.lists(one, min_size=1, max_size=3).map(tuple)
        functions[number] = tuple(draw(st.lists(row, min_size=1, max_size=3)))
    first = functions[min(numbers)]
    functions[min(numbers)] = ((first[0][0]._replace(absent=False), *first[0][1:]), *first[1:])
    positive = [number for number, rows in functions.items() if any(not item.absent for row in rows for item in row)]
    argument = st.builds(Argument, st.sampled_from(positive), st.sampled_from(["result", "match", "bytes", "last"]))
    value = st.one_of(
        argument,
        st.integers(-(10**18) + 1, 10**18 - 1),
        st.sampled_from(processes).map(Process),
        st.sampled_from(["MPI_ANY_TAG", "MPI_PROC_NULL", "MPI_ERR_RANK", "MPI_UNDEFINED"]).map(Constant),
    )
    conditions = draw(st.lists(st.builds(Condition, argument, SIGNS, value, st.just(0)), max_size=4))
    ranks = draw(st.lists(RANKS, max_size=most, unique=True))
    return Template(
        "t", draw(LINES), size, functions, tuple(conditions), dict(zip(processes, ranks, strict=False)),
        draw(st.sampled_from(["error", "warning", "note"])), draw(st.one_of(st.sampled_from(["none", "some"]), RANKS)),
        draw(LINES), WHERE, {},
    )  # fmt: skip


def numbered(letter: str, number: int) -> str:
    return f"{letter}{'i' if number == EVERY else number}"


def printed(one: Template, separator: str) -> str:
    """As somebody would write it."""
    size = one.size if isinstance(one.size, int) else f"n({one.size})"
    words = [f"Name={one.name}\nKind={one.kind}", f"Expect={one.expect}", f"\nText={one.text}\n1block", f"N={size}"]
    words += [f"p{number}={rank}" for number, rank in one.bound.items()]
    words.append("2block")
    for number, rows in one.functions.items():
        texts = [
            "&&".join(f"{numbered('p', item.process)}:{item.text}{'!' if item.absent else ''}" for item in row)
            for row in rows
        ]
        words.append(f"{numbered('F', number)}={' || '.join(texts)}")
    words.append("3block")
    for condition in one.conditions:
        words.append(f"{side(condition.left)}{condition.sign}{side(condition.right)}")
    return separator.join(words)


def side(of: Argument | Process | Constant | int) -> str:
    if isinstance(of, Argument):
        return f"{numbered('F', of.function)}({of.name})"
    if isinstance(of, Process):
        return f"p{of.number}"
    return of.name if isinstance(of, Constant) else str(of)


@given(templates(), st.sampled_from(["\n", " ", "\t", "\n\n", " # and\n"]))
def test_a_template_that_is_printed_is_read_again(one: Template, separator: str) -> None:
    found = template(printed(one, separator))
    same = tuple(condition._replace(line=0) for condition in found.conditions)
    assert Template(**{**vars(found), "conditions": same, "lines": {}}) == one


PIECES = [
    *("Name=x\n", "Kind=note ", "Expect=2 ", "Text=a\n", "1block ", "2block\n", "3block\n", "N=2 "),
    *("N=n(MPI_COMM_WORLD)\n",),
    *("p1=0 ", "F1=", "F2=", "Fi=", "p1:", "pi:", "Isend ", "IPTP", "!", "&&", "||", "F1(7)", "F2(comm)"),
    *("=", "!=", "<", "MPI_ANY_TAG ", "-1 ", "12 ", "# no\n", "\n", "\r\n"),
    *(" ", "(", ")", "&", "é", "\0", "99999999999999999999 "),
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
@example(REUSED)
@settings(max_examples=many(300))
def test_pieces_of_templates_in_any_order_give_a_template_or_faults_in_the_text(text: str) -> None:
    found, wrong = parse(text, WHERE)
    assert (found is None) == bool(wrong)
    lines = text.replace("\r\n", "\n").split("\n")
    for one in wrong:
        assert 1 <= one.line <= len(lines) and 1 <= one.column <= len(lines[one.line - 1]) + 1, one
        assert str(one).isprintable()


@given(st.binary(max_size=300))
@example(b"\xff")
@example(b"Name=\xc3")
@example(b"\x00" * 50)
def test_any_bytes_give_faults_and_nothing_else(data: bytes) -> None:
    path = Path("bytes.tpl")
    found, wrong = language.parse_bytes(data, path)
    assert (found is None) == bool(wrong)
    if found is None:
        assert all(str(one).startswith("bytes.tpl:") and str(one).isprintable() for one in wrong)


LARGE = {
    "functions": START + "".join(f"F{number}=p1:Coll\n" for number in range(1, 60_000)),
    "items": START + "F1=p1:Coll" + "&&p2:PTP" * 130_000,
    "conditions": START + "F1=p1:Coll\n3block\n" + "F1(comm)=MPI_COMM_WORLD\n" * 43_000,
    "words": START + "F1=p1:" + "x" * 1_000_000,
    "unknown": START + "".join(f"F{number}=p1:Isen{number}d\n" for number in range(1, 50_000)),
    "signs": "!" * 1_000_000,
    "digits": "N=" + "1" * 1_000_000,
    "blanks": ("n" + " " * 1000) * 1000,
}


def work(text: str) -> int:
    """How many functions are called to read this much of a text, to the end of a line if there are lines."""
    calls = list[str]()
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        parse(text[: text.rfind("\n") + 1] or text, WHERE)
    finally:
        sys.setprofile(None)
    return len(calls)


@pytest.mark.parametrize("of", some_of([*LARGE], 3, 8))
def test_a_large_file_takes_no_more_than_its_size(of: str) -> None:
    """By the functions that are called. Where one word is long a single search could take its square: hours."""
    text, size = LARGE[of], language.LARGEST // 128
    assert work(text[: 4 * size]) < 6 * work(text[:size]) + 100
    if LONG or of in ("words", "digits", "blanks"):
        parse(text[: language.LARGEST], WHERE)


# Files.


def write(directory: Path, name: str, text: str | bytes = NOT_FREED) -> Path:
    directory.mkdir(exist_ok=True, parents=True)
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_is_read_with_its_path_and_its_stem_as_its_id(tmp_path: Path) -> None:
    path = write(tmp_path, "type-2.tpl")
    assert (read(path).id, read(path).path, faults(path)) == ("type-2", path, [])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"Name=x\n1block\xff\n", "2:7: found the byte 0xff, expected UTF-8"),
        ("Name=é".encode() + b"\xe9", "1:7: found the byte 0xe9, expected UTF-8"),
        (b"", "1:1: the file is empty, expected Name=…"),
        (b" " * (1 << 20), "1:1: the file is empty, expected Name=…"),
        (b" " * ((1 << 20) + 1), "1:1: is larger than 1 MiB"),
    ],
    ids=["not UTF-8", "Latin 1", "empty", "1 MiB", "larger"],
)
def test_a_file_that_is_no_text_is_told(tmp_path: Path, data: bytes, text: str) -> None:
    path = write(tmp_path, "a.tpl", data)
    assert [str(one) for one in faults(path)] == [f"{path}:{text}"]


def test_a_directory_a_pipe_and_nothing_at_all_are_told(tmp_path: Path) -> None:
    (tmp_path / "d.tpl").mkdir()
    os.mkfifo(tmp_path / "p.tpl")
    names = [f"{name}.tpl" for name in "dpn"]
    assert [[one.text for one in faults(tmp_path / name)] for name in names] == [
        ["is a directory, expected a file .tpl"], ["is no regular file"], ["No such file or directory"],
    ]  # fmt: skip
    assert len(faults(Path("a\0b.tpl"))) == 1


@pytest.mark.parametrize("name", ["My_Template.tpl", "ü.tpl", "A.tpl", "a b.tpl", ".tpl"])
def test_a_file_whose_name_cannot_be_an_id_is_told(tmp_path: Path, name: str) -> None:
    (one,) = faults(write(tmp_path, name))
    assert (one.line, one.text) == (1, f"the name of the file is '{Path(name).stem}', expected a-z, 0-9 and - alone")


def test_reading_a_wrong_file_raises_all_of_its_faults(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tpl", START + "F1=p1:Isen\nF2=p3:Send")
    with pytest.raises(UsageError) as raised:
        read(path)
    assert str(raised.value).splitlines() == [
        f"{path}:5:7: no function of MPI is named 'Isen'; Isend?",
        f"{path}:6:4: F2 uses p3, but N=2",
    ]


# What `-t` means.


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three templates that come with the library, two of which are standard; and an empty directory to work in."""
    directory = tmp_path / "standard"
    for name in ("type-not-freed", "request-reused", "any-source"):
        write(directory, f"{name}.tpl", REUSED)
    write(directory, "standard.txt", "# those that run\nrequest-reused\n\ntype-not-freed # so\n")
    monkeypatch.setattr(language, "STANDARD", directory)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return directory


def ids(*words: str) -> list[str]:
    return [one.id for one in load(words)]


def test_standard_is_a_list_and_a_name_is_shipped(shipped: Path) -> None:
    assert ids("standard") == ["request-reused", "type-not-freed"] == language.standard()
    assert ids("any-source") == ["any-source"]
    assert [*language.shipped()] == ["any-source", "request-reused", "type-not-freed"]
    assert ids() == []


def test_a_file_and_a_directory_are_read(shipped: Path) -> None:
    write(Path("more"), "b.tpl"), write(Path("more"), "a.tpl"), write(Path("more"), "notes.txt"), write(Path(), "c.tpl")
    assert ids("c.tpl", "more") == ["c", "a", "b"]


def test_what_is_named_twice_is_read_once(shipped: Path) -> None:
    write(Path("more"), "b.tpl")
    assert ids("standard", "type-not-freed", "more/b.tpl", "more", str(Path("more/b.tpl").absolute())) == [
        "request-reused", "type-not-freed", "b",
    ]  # fmt: skip


def test_a_name_that_is_shipped_wins_over_a_file(shipped: Path) -> None:
    write(Path("any-source"), "b.tpl")
    assert (ids("any-source"), ids("./any-source")) == (["any-source"], ["b"])


def test_two_templates_of_one_name_are_refused(shipped: Path) -> None:
    path = write(Path("more"), "any-source.tpl")
    with pytest.raises(UsageError) as raised:
        load(["any-source", "more"])
    assert str(raised.value) == f"{path}:1:1: {shipped}/any-source.tpl has the same name; rename one of them"


def test_all_faults_of_all_files_are_told_before_anything_runs(shipped: Path) -> None:
    for name in "abc":
        write(Path("more"), f"{name}.tpl", START + ("F1=p1:Isen" if name != "b" else "F1=p1:Isend"))
    with pytest.raises(UsageError) as raised:
        load(["standard", "more"])
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == ["more/a.tpl", "more/c.tpl"]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("requst-reused", "no template and no file is named 'requst-reused'; request-reused?"),
        ("standart", "no template and no file is named 'standart'; standard?"),
        ("nothing-like/it.tpl", "no template and no file is named 'nothing-like/it.tpl'"),
        ("empty", "no template is in empty: its files should end with .tpl"),
    ],
)
def test_a_word_that_names_nothing_is_told(shipped: Path, word: str, text: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(UsageError, match=f"^{re.escape(text)}$"):
        load([word])


def test_a_template_that_the_list_names_and_nobody_has_is_told(shipped: Path) -> None:
    (shipped / "type-not-freed.tpl").unlink()
    with pytest.raises(UsageError, match="lacks templates: type-not-freed"):
        load(["standard"])


# Facts.


def test_the_constants_of_the_mpi_that_is_installed_are_known_with_their_kinds() -> None:
    header = Path(sysconfig.get_path("data")) / "include/mpi.h"
    if not header.is_file():
        pytest.skip("needs the header of MPICH's wheel")
    text = header.read_text("utf-8", errors="replace")
    found = re.findall(r"#\s*define\s+(MPI_[A-Z0-9_]+)\s+\(\((MPI_\w+)\)", text)
    handles = {name: HANDLES[of] for name, of in found if of in HANDLES}
    assert len(handles) > 80
    assert {name: vocabulary.constants().get(name) for name in handles} == handles
    numbers = set(re.findall(r"\b(MPI_(?:ERR|MODE|THREAD|LOCK|SEEK|ORDER)_[A-Z_]+)\b", text))
    assert numbers - {*vocabulary.constants()} == set()


def test_no_constant_is_listed_twice() -> None:
    words = [word for line in vocabulary.TABLE.read_text("utf-8").splitlines() for word in line.split()[1:]]
    assert len(words) == len(set(words)) == len(vocabulary.constants())
