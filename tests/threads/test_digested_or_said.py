"""What a region assigns has a digest, or `build` and `test` say that it has none."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed.sweep import some_of
from testbed.threads_chain import instrumented, needs, outcome

# What procedures assign of what is handed to them: objects of bindings and pointers, arguments of functions, and what
# addresses and pointers lead to. It is digested, or said.

HANDING = """\
module m
  use iso_c_binding
  implicit none
  type t
    integer :: n = 0, other = 0
    {components}
  contains
    procedure :: up
    procedure :: look
    procedure, pass(self) :: second
    procedure, nopass :: free
    procedure :: next
    generic :: both => up, second
  end type
  type, extends(t) :: child
    integer :: k = 0
  contains
    procedure :: up => childs
  end type
  type outer
    type(t) :: inside(2)
  end type
  type w
    real(8), pointer :: p(:) => null()
  end type
  abstract interface
    subroutine simple(self)
      import t
      class(t), intent(inout) :: self
    end subroutine
  end interface
contains
  subroutine up(self)
    class(t), intent(inout) :: self
    self%n = self%n + 1
  end subroutine
  subroutine childs(self)
    class(child), intent(inout) :: self
    self%k = self%k + 1
  end subroutine
  subroutine look(self, k)
    class(t), intent(in) :: self
    integer, intent(out) :: k
    k = self%n
  end subroutine
  subroutine second(k, self)
    integer, intent(in) :: k
    class(t), intent(inout) :: self
    self%other = k
  end subroutine
  subroutine free(k)
    integer, intent(in) :: k
  end subroutine
  integer function next(self)
    class(t), intent(inout) :: self
    call self%up()
    next = self%n
  end function
  integer function f(a, b)
    integer, intent(inout) :: a(:)
    integer, intent(in), optional :: b
    a(2) = a(2) + 1
    f = 1
  end function
  integer function old(a, b)
    integer :: a, b
    a = b
    old = a
  end function
  subroutine follows(x)
    type(w), intent(in) :: x
    x%p(2) = x%p(2) + 1
  end subroutine
  subroutine far(at)
    type(c_ptr), value :: at
    integer, pointer :: q
    call c_f_pointer(at, q)
    q = q + 1
  end subroutine
end module
program p
  use m
  implicit none
  integer, target :: a(4), b, i, k
  logical :: l(2)
  character(9) :: s
  namelist /group/ b
  type(t), target :: x, y(4)
  type(child) :: c
  type(outer) :: o
  type(w) :: z
  type(c_ptr) :: at
  class(t), allocatable :: g
  real(8), target :: r(4)
  a = 0; b = 0; k = 0; r = 0
  z%p => r
  {own}
  {stmt}
  print *, 'done'
end program
"""
REGION = """!$omp parallel
  !$omp critical
  {}
  !$omp end critical
  !$omp end parallel"""


def handing(stmts: str, own: str = "", components: str = "") -> str:
    return HANDING.replace("{stmt}", stmts).replace("{own}", own).replace("{components}", components)


class Said(NamedTuple):
    """Of a region: what is digested at its end, and what is said of its lines."""

    digests: list[str]
    left: str


def digests(text: str, here: Path) -> tuple[list[str], str]:
    """The digests at the end of the first region, and what is said of all lines."""
    made = instrumented(here, text)
    region = next(site for site in made.sites if site.type == "region")
    found = [site.name for site in made.sites if site.type == "array" and site.line == region.line2]
    return found, "; ".join(why for _, why in made.left_out)


def handed(here: Path, statements: Iterable[str], own: str = "", components: str = "") -> list[Said]:
    """Of a program that has a region for each of these statements."""
    made = instrumented(here, handing("\n  ".join(REGION.format(stmt) for stmt in statements), own, components))
    return [Said([site.name for site in made.sites if site.type == "array" and site.line == region.line2],
                 "; ".join(why for line, why in made.left_out if region.line <= line <= region.line2))
            for region in made.sites if region.type == "region"]  # fmt: skip


POINTER = "procedure(simple), pointer :: go => null()"
HANDED = {
    "object": ("call x%up()", "x%n"),
    "object of a type that extends": ("call c%up()", "c%k"),
    "object that is polymorphic": ("call g%up()", "g%n"),
    "generic binding": ("call x%both(3)", "x%other"),
    "argument that is named by pass": ("call x%second(3)", "x%other"),
    "component that is an element": ("call o%inside(2)%up()", "o%inside%n"),
    "element": ("call y(3)%up()", "y%n"),
    "function of an object": ("k = 0 * x%next()", "x%n"),
    "function of an element in a condition": ("if (y(k + 1)%next() > 0) k = 1", "y%n"),
    "function in an assignment": ("k = f(a)", "a"),
    "function in the condition of a block": ("if (f(a) > 0) then\n k = 1\n end if", "a"),
    "function as an argument": ("call free(f(a))", "a"),
    "function with a name of its argument": ("k = f(b=1, a=a)", "a"),
    "function without intents": ("k = old(b, k)", "b"),
    "pointer in an argument that is read": ("call follows(z)", "z%p"),
    "address of a variable": ("call far(c_loc(b))", "b"),
}


def test_what_is_handed_on_and_assigned_is_in_a_digest(tmp_path: Path) -> None:
    found = zip(HANDED.items(), handed(tmp_path, (stmt for stmt, _ in HANDED.values())), strict=True)
    assert [(case, said) for (case, (_, name)), said in found if name not in said.digests] == []


def test_the_object_of_a_procedure_pointer_is_in_a_digest(tmp_path: Path) -> None:
    assert "x%n" in handed(tmp_path, ["call x%go()"], "x%go => up", POINTER)[0].digests


ONLY_READ = {
    "call x%look(k)": "x",
    "call x%free(3)": "x",
    "k = old(b, i)": "i",
    "k = f(a, b)": "b",
    "k = max(b, 1)": "b",
}


def test_what_is_only_read_is_in_none(tmp_path: Path) -> None:
    for (stmt, name), said in zip(ONLY_READ.items(), handed(tmp_path, ONLY_READ), strict=True):
        assert name not in [each.split("%")[0] for each in said.digests] and "no digest" not in said.left, (stmt, said)


STATUS = {
    "read (5, *, iostat=b) k": "b",
    "write (6, *, iostat=b) k": "b",
    "if (k == 0) open (7, file='a', iostat=b)": "b",
    "inquire (file='a', exist=l(1), opened=l(2))": "l",
    "inquire (iolength=b) r": "b",
    "allocate (g, stat=b)": "b",
    "deallocate (g, stat=b)": "b",
    "read (5, '(i1)', advance='no', size=b, iostat=k) i": "b",
}


def test_what_a_specifier_gives_a_value_is_in_a_digest(tmp_path: Path) -> None:
    found = zip(STATUS.items(), handed(tmp_path, STATUS), strict=True)
    assert [(stmt, said) for (stmt, name), said in found if name not in said.digests] == []


SAID = {
    "open (newunit=b, file='a')": "b is in no digest, as it is a number that no program chooses",
    "read (5, *, iomsg=s, iostat=k) i": "s is in no digest, as it has a value only after an error",
    "read (5, nml=group)": "what NAMELIST group has is in no digest",
    "call far(at)": "what at leads to is in no digest, as it is an address",
    "call unknown(g)": "g as child is in no digest: it is polymorphic",
    "call g%up()": "g as child is in no digest: it is polymorphic",
}


def test_what_cannot_be_digested_is_said(tmp_path: Path) -> None:
    found = zip(SAID.items(), handed(tmp_path, SAID), strict=True)
    assert [(stmt, said) for (stmt, why), said in found if why not in said.left] == []
    assert "what q of far leads to is in no digest" in digests(handing(REGION.format("call far(at)")), tmp_path)[1]


@pytest.mark.parametrize("stmt", some_of(["call x%up()", "k = 0 * x%next()", "if (f(a) > 0) k = 1", "call follows(z)",
                                          "call far(c_loc(b))", "read (5, *, iostat=b) k"], 2, 6))  # fmt: skip
def test_a_call_by_each_thread_is_a_difference(stmt: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, handing(REGION.format(stmt)))
    assert found.code == 1, found


@pytest.mark.parametrize("components", ["integer, private :: n = 0", "private\n integer :: n = 0"])
def test_a_private_component_of_another_module_is_said_and_not_digested(components: str, tmp_path: Path) -> None:
    made = handing(REGION.format("call x%up()"))
    made = made.replace("integer :: n = 0, other = 0\n    ", f"{components}\n integer, public :: other = 0\n")
    found, left = digests(made, tmp_path)
    assert "x%n" not in found and "x%n is in no digest: component n of type t is PRIVATE" in left, (found, left)


# What a region assigns through pointers, arguments, operators, assignments, bindings and finalizers: it is digested
# where the region can name it, and said where it cannot, or where nobody knows what is called.

MODULE = """\
module md
  implicit none
  real(8) :: hid(200) = 0
  {declared}
contains
  {procedures}
end module
program p
  {use}
  implicit none
  integer :: i
  {own}
  !$omp parallel do
  do i = 1, 100
    {stmt}
  end do
  print *, 'done'
{inside}
end program
"""
GO = """subroutine go(i)
    integer, intent(in) :: i
    hid(i) = i
    {left}
  end subroutine"""
OPERATOR = """integer function foo(a, b)
    {kind}, intent(in) :: a
    integer, intent(in) :: b
    hid(b) = b
    {left}
    foo = b
  end function"""
ASSIGN = """subroutine as(a, i)
    class(t), intent(out) :: a
    integer, intent(in) :: i
    a%k = i
    hid(i) = i
    {left}
  end subroutine"""
FINAL = """subroutine fi(self)
    type(t), intent(inout) :: self
    hid(self%k) = self%k
  end subroutine"""
TYPE = "type t; integer :: k = 1; {components}; end type"
INTERFACE = "abstract interface; subroutine ab(i); integer, intent(in) :: i; end subroutine; end interface"
THROUGH = """subroutine go(i, f)
    integer, intent(in) :: i
    interface; subroutine f(i); integer, intent(in) :: i; end subroutine; end interface
    call f(i)
  end subroutine
  subroutine q(i)
    integer, intent(in) :: i
    hid(i) = i
  end subroutine"""


def typed(components: str = "") -> str:
    return TYPE.replace("{components}", components).replace("; ;", ";").replace("; ", "\n")


CALLS = {
    "pointer": {"declared": f"{INTERFACE}\n procedure(ab), pointer :: pp => null()".replace("; ", "\n"),
                "procedures": GO, "own": "pp => go", "stmt": "call pp(i)"},
    "pointer with its target from the beginning": {
        "declared": f"{INTERFACE}\n procedure(ab), pointer :: pp => go".replace("; ", "\n"),
        "procedures": GO, "stmt": "call pp(i)"},
    "component that is a pointer": {
        "declared": f"{INTERFACE}\n".replace("; ", "\n") + typed("procedure(ab), pointer, nopass :: f => null()"),
        "procedures": GO, "own": "type(t) :: o\n o%f => go", "stmt": "call o%f(i)"},
    "argument": {"procedures": THROUGH.replace("; ", "\n"), "stmt": "call go(i, q)"},
    "operator": {"declared": "interface operator(.foo.)\n module procedure foo\n end interface\n integer :: x(100)",
                 "procedures": OPERATOR.replace("{kind}", "integer"), "stmt": "x(i) = i .foo. i"},
    "intrinsic operator": {
        "declared": typed() + "\n interface operator(<=)\n module procedure foo\n end interface\n integer :: x(100)",
        "procedures": OPERATOR.replace("{kind}", "type(t)"), "own": "type(t) :: o", "stmt": "x(i) = o .le. i"},
    "bound operator": {
        "declared": typed("contains; procedure :: foo; generic :: operator(+) => foo") + "\n integer :: x(100)",
        "procedures": OPERATOR.replace("{kind}", "class(t)"), "own": "type(t) :: o", "stmt": "x(i) = o + i"},
    "assignment": {"declared": typed() + "\n interface assignment(=)\n module procedure as\n end interface",
                   "procedures": ASSIGN, "own": "type(t) :: o(100)", "stmt": "o(i) = i"},
    "bound assignment": {"declared": typed("contains; procedure :: as; generic :: assignment(=) => as"),
                         "procedures": ASSIGN, "own": "type(t) :: o(100)", "stmt": "if (i > 0) o(i) = i"},
    "binding of another name": {"declared": typed("contains; procedure :: put => as"), "procedures": ASSIGN,
                                "own": "type(t) :: o(100)", "stmt": "call o(i)%put(i)"},
    "generic of two": {"declared": "interface any\n module procedure go, other\n end interface",
                       "procedures": GO + "\n subroutine other(x)\n real, intent(in) :: x\n end subroutine",
                       "stmt": "call any(i)"},
    "finalizer at the end of a block": {"declared": typed("contains; final :: fi"), "procedures": FINAL,
                                        "stmt": "block\n type(t) :: o\n end block"},
    "finalizer of a component": {
        "declared": typed("contains; final :: fi") + "\n type s\n type(t), allocatable :: a\n end type",
        "procedures": FINAL, "own": "type(s) :: o(100)", "stmt": "deallocate (o(i)%a)"},
    "finalizer of a variable of a procedure": {
        "declared": typed("contains; final :: fi"),
        "procedures": FINAL + "\n subroutine go(i)\n integer, intent(in) :: i\n type(t) :: o\n o%k = i\n end",
        "stmt": "call go(i)"},
    "procedure that only its module can name": {
        "use": "use md, only: hid, outer", "declared": "private :: go",
        "procedures": GO + "\n subroutine outer(i)\n integer, intent(in) :: i\n call go(i)\n end subroutine",
        "stmt": "call outer(i)"},
    "procedure inside of the program": {
        "use": "use md, only: i1 => hid", "own": "real(8) :: hid(100)", "stmt": "call go(i)",
        "inside": "contains\n" + GO},
}  # fmt: skip


def calling(case: dict[str, str], left: str = "") -> str:
    parts = {"declared": "", "procedures": "", "use": "use md", "own": "", "inside": "", **case}
    made = MODULE
    for name, part in parts.items():
        made = made.replace("{" + name + "}", part)
    made = made.replace("{left}", left)
    return "\n".join(line for line in made.split("\n") if line.strip() not in ("contains", "") or "{" not in line)


@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS.keys())
def test_what_is_assigned_so_is_in_a_digest(case: dict[str, str], tmp_path: Path) -> None:
    found, left = digests(calling(case), tmp_path)
    assert "hid" in found and "no digest" not in left, (found, left)


def test_these_programs_are_fortran(tmp_path: Path) -> None:
    """All of them in one call of the compiler."""
    needs("gfortran")
    names = []
    for number, case in enumerate(CALLS.values()):
        names.append(f"{number}.f90")
        made = calling(case).replace("module md", f"module md{number}").replace("use md", f"use md{number}")
        (tmp_path / names[-1]).write_text(made)
    done = subprocess.run(
        ["gfortran", "-fsyntax-only", "-fopenmp", *names], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, (list(CALLS), done.stderr)


def test_a_name_that_use_has_changed_is_the_one_that_is_digested(tmp_path: Path) -> None:
    found, left = digests(
        calling({"procedures": GO, "use": "use md, only: mine => hid, go", "stmt": "call go(i)"}), tmp_path
    )
    assert "mine" in found and "hid" not in found and "no digest" not in left


@pytest.mark.parametrize("use, declared", [("use md, only: go", ""), ("use md", "private :: hid")])
def test_what_has_no_name_at_the_region_is_said(use: str, declared: str, tmp_path: Path) -> None:
    found, left = digests(calling({"procedures": GO, "use": use, "declared": declared, "stmt": "call go(i)"}), tmp_path)
    assert "hid" not in found
    assert "hid of md is in no digest, as go assigns it and it has no name here" in left


def test_what_a_procedure_keeps_for_its_next_call_is_said(tmp_path: Path) -> None:
    made = calling(
        {"procedures": GO.replace("hid(i) = i", "real, save :: memo(100)\n memo(i) = i"), "stmt": "call go(i)"}
    )
    assert "memo of go is in no digest, as go assigns it and it has no name here" in digests(made, tmp_path)[1]


def test_what_a_submodule_or_an_entry_assigns_is_said_or_digested(tmp_path: Path) -> None:
    declared = "interface\n module subroutine go(i)\n integer, intent(in) :: i\n end subroutine\n end interface"
    sub = (
        GO.replace("subroutine go", "module subroutine go")
        .replace("hid(i)", "hid(i) = i\n own(i)")
        .replace("{left}", "")
    )
    sub = f"submodule (md) smd\n real(8) :: own(100) = 0\ncontains\n{sub}\nend submodule\n"
    head, tail = calling({"declared": declared, "stmt": "call go(i)"}).split("program p", 1)
    found, left = digests(f"{head}{sub}program p{tail}", tmp_path)
    assert "hid" in found and "own of smd is in no digest" in left, (found, left)
    entry = "subroutine ex(i)\n use md\n integer :: i\n hid(i) = 0\n entry en(i)\n hid(i) = i\n end subroutine\n"
    found, left = digests(calling({"stmt": "call en(i)"}) + entry, tmp_path)
    assert "hid" in found and "no digest" not in left, (found, left)


@pytest.mark.parametrize("own, stmt, why", [
    ("external :: ext", "call ext(i)", "what ext assigns beside its arguments is in no digest, as its source is not"),
    ("real(8) :: x(100)\n real(8), external :: f", "x(i) = f(i)", "what f assigns beside its arguments is in no"),
    ("procedure(), pointer :: pp", "call pp(i)",
     "what pp assigns beside its arguments is in no digest, as what it stands for is not known"),
])  # fmt: skip
def test_what_nobody_knows_is_said(own: str, stmt: str, why: str, tmp_path: Path) -> None:
    assert why in digests(calling({"own": own, "stmt": stmt}), tmp_path)[1]


@pytest.mark.parametrize("own, stmt", [
    ("real(8) :: x(100), y(100)", "x(i) = sqrt(y(i)) + max(1d0, dble(i))"),
    ("real(8) :: x(100)", "call random_number(x(i))"),
    ("real(8) :: x(100), y(100)", "call daxpy(1, 1d0, x(i), 1, y(i), 1)"),
    ("character(9) :: s", "write (s(1:2), '(i2)') i"),
    ("real(8) :: x(100)\n real(8) :: f, z\n f(z) = z + 1", "x(i) = f(1d0)"),
    ("real(8) :: x(100)\n real(8), external :: omp_get_wtick", "x(i) = 1d0 / omp_get_wtick()"),
    ("#define SQ(a) ((a)*(a))\n real(8) :: x(100)", "x(i) = SQ(i)"),
    ("real(8) :: x(100)", "associate (y => x(:))\n y(i) = i\n end associate"),
])  # fmt: skip
def test_what_the_language_and_libraries_have_is_not_said(own: str, stmt: str, tmp_path: Path) -> None:
    assert "no digest" not in digests(calling({"own": own, "stmt": stmt}), tmp_path)[1]


def test_a_number_of_a_thread_that_a_procedure_inside_assigns_is_no_difference(tmp_path: Path) -> None:
    inside = "contains\n subroutine go()\n use omp_lib\n me = omp_get_thread_num()\n end subroutine"
    assert "me" not in digests(calling({"own": "integer :: me", "stmt": "call go()", "inside": inside}), tmp_path)[0]


@pytest.mark.parametrize("case", some_of(["pointer", "binding of another name", "operator"], 1, 3))
def test_a_line_that_is_not_recorded_in_what_is_called_is_named(case: str, tmp_path: Path) -> None:
    index = {"pointer": "i", "binding of another name": "i", "operator": "b"}[case]
    made = calling(CALLS[case], left=f"!$ hid({index}) = -{index}")
    line = next(number for number, each in enumerate(made.split("\n"), 1) if "!$ hid" in each)
    found = outcome(tmp_path, made)
    assert found.code == 1, found
    assert f"what line {line} may assign to hid is not recorded" in found.said and "PRIVATE" not in found.said


def test_what_nobody_knows_is_said_by_build_and_at_the_end_of_test(tmp_path: Path) -> None:
    needs("gfortran")
    (tmp_path / "ext.f90").write_text("subroutine ext(i)\n integer :: i\nend subroutine\n")
    subprocess.run(["gfortran", "-c", "ext.f90"], cwd=tmp_path, check=True)
    made = calling({"own": "external :: ext", "stmt": "call ext(i)"})
    line = next(number for number, each in enumerate(made.split("\n"), 1) if "call ext" in each)
    found = outcome(tmp_path, made, "ext.o")
    why = "what ext assigns beside its arguments is in no digest, as its source is not known"
    assert f"{why}, line {line}" in found.built
    assert found.code == 0 and f"  x.f90:{line}: {why}" in found.said, found


# An array that no digest has, as numbers of threads are in it: `build` says so, and so does `test`.

REUSED = """\
program t
  use omp_lib
  implicit none
  integer :: i, n
  real(8) :: a(4)
  !$omp parallel private(n)
  n = omp_get_num_threads()
  !$omp end parallel
  !$omp parallel do private(n)
  do i = 1, 4
    n = i
    a(n) = i
  end do
  print *, a
end program t
"""


def test_what_is_in_no_digest_is_told(tmp_path: Path) -> None:
    found = outcome(tmp_path, REUSED)
    why = "a is in no digest, as its subscript n may be the number of a thread, or a time"
    assert f"{why}, line 12" in found.built
    assert found.code == 0 and f"  x.f90:12: {why}" in found.said, found
