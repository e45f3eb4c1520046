"""What a region assigns through pointers, arguments, operators, assignments, bindings and finalizers: it is digested
where the region can name it, and said where it cannot, or where nobody knows what is called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from safepoint.threads import fortran

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


CASES = {
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


def text(case: dict[str, str], left: str = "") -> str:
    parts = {"declared": "", "procedures": "", "use": "use md", "own": "", "inside": "", **case}
    made = MODULE
    for name, part in parts.items():
        made = made.replace("{" + name + "}", part)
    made = made.replace("{left}", left)
    return "\n".join(line for line in made.split("\n") if line.strip() not in ("contains", "") or "{" not in line)


def digests(text: str, here: Path) -> tuple[list[str], str]:
    """The digests at the end of the region, and what is said of the lines."""
    (here / "a.f90").write_text(text)
    made = fortran.instrument(here / "a.f90")
    region = next(site for site in made.sites if site.type == "region")
    found = [site.name for site in made.sites if site.type == "array" and site.line == region.line2]
    return found, "; ".join(why for _, why in made.left_out)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_assigned_so_is_in_a_digest(case: dict[str, str], tmp_path: Path) -> None:
    found, left = digests(text(case), tmp_path)
    assert "hid" in found and "no digest" not in left, (found, left)


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_these_programs_are_fortran(tmp_path: Path) -> None:
    for number, case in enumerate(CASES.values()):
        (tmp_path / f"{number}.f90").write_text(text(case))
        done = subprocess.run(["gfortran", "-fsyntax-only", "-fopenmp", f"{number}.f90"], cwd=tmp_path,
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, (list(CASES)[number], done.stderr)


def test_a_name_that_use_has_changed_is_the_one_that_is_digested(tmp_path: Path) -> None:
    found, left = digests(
        text({"procedures": GO, "use": "use md, only: mine => hid, go", "stmt": "call go(i)"}), tmp_path
    )
    assert "mine" in found and "hid" not in found and "no digest" not in left


@pytest.mark.parametrize("use, declared", [("use md, only: go", ""), ("use md", "private :: hid")])
def test_what_has_no_name_at_the_region_is_said(use: str, declared: str, tmp_path: Path) -> None:
    found, left = digests(text({"procedures": GO, "use": use, "declared": declared, "stmt": "call go(i)"}), tmp_path)
    assert "hid" not in found
    assert "hid of md is in no digest, as go assigns it and it has no name here" in left


def test_what_a_procedure_keeps_for_its_next_call_is_said(tmp_path: Path) -> None:
    made = text({"procedures": GO.replace("hid(i) = i", "real, save :: memo(100)\n memo(i) = i"), "stmt": "call go(i)"})
    assert "memo of go is in no digest, as go assigns it and it has no name here" in digests(made, tmp_path)[1]


def test_what_a_submodule_or_an_entry_assigns_is_said_or_digested(tmp_path: Path) -> None:
    declared = "interface\n module subroutine go(i)\n integer, intent(in) :: i\n end subroutine\n end interface"
    sub = (
        GO.replace("subroutine go", "module subroutine go")
        .replace("hid(i)", "hid(i) = i\n own(i)")
        .replace("{left}", "")
    )
    sub = f"submodule (md) smd\n real(8) :: own(100) = 0\ncontains\n{sub}\nend submodule\n"
    head, tail = text({"declared": declared, "stmt": "call go(i)"}).split("program p", 1)
    found, left = digests(f"{head}{sub}program p{tail}", tmp_path)
    assert "hid" in found and "own of smd is in no digest" in left, (found, left)
    entry = "subroutine ex(i)\n use md\n integer :: i\n hid(i) = 0\n entry en(i)\n hid(i) = i\n end subroutine\n"
    found, left = digests(text({"stmt": "call en(i)"}) + entry, tmp_path)
    assert "hid" in found and "no digest" not in left, (found, left)


@pytest.mark.parametrize("own, stmt, why", [
    ("external :: ext", "call ext(i)", "what ext assigns beside its arguments is in no digest, as its source is not"),
    ("real(8) :: x(100)\n real(8), external :: f", "x(i) = f(i)", "what f assigns beside its arguments is in no"),
    ("procedure(), pointer :: pp", "call pp(i)",
     "what pp assigns beside its arguments is in no digest, as what it stands for is not known"),
])  # fmt: skip
def test_what_nobody_knows_is_said(own: str, stmt: str, why: str, tmp_path: Path) -> None:
    assert why in digests(text({"own": own, "stmt": stmt}), tmp_path)[1]


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
    assert "no digest" not in digests(text({"own": own, "stmt": stmt}), tmp_path)[1]


def test_a_number_of_a_thread_that_a_procedure_inside_assigns_is_no_difference(tmp_path: Path) -> None:
    inside = "contains\n subroutine go()\n use omp_lib\n me = omp_get_thread_num()\n end subroutine"
    assert "me" not in digests(text({"own": "integer :: me", "stmt": "call go()", "inside": inside}), tmp_path)[0]


def outcome(here: Path, text: str, *more: str) -> tuple[str, subprocess.CompletedProcess[str]]:
    (here / "a.f90").write_text(text)
    line = [sys.executable, "-m", "safepoint", "threads"]
    build = [*line, "build", "-o", "a", "--", "gfortran", "-O1", "-fopenmp", "a.f90", *more]
    said = subprocess.run(build, cwd=here, capture_output=True, text=True, check=True).stdout
    done = subprocess.run([*line, "test", "--", "./a"], cwd=here, capture_output=True, text=True, timeout=300)
    return said, done


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
@pytest.mark.parametrize("case", ["pointer", "binding of another name", "operator"])
def test_a_line_that_is_not_recorded_in_what_is_called_is_named(case: str, tmp_path: Path) -> None:
    index = {"pointer": "i", "binding of another name": "i", "operator": "b"}[case]
    made = text(CASES[case], left=f"!$ hid({index}) = -{index}")
    line = next(number for number, each in enumerate(made.split("\n"), 1) if "!$ hid" in each)
    _, done = outcome(tmp_path, made)
    assert done.returncode == 1, done.stdout
    assert f"what line {line} may assign to hid is not recorded" in done.stdout and "PRIVATE" not in done.stdout


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_what_nobody_knows_is_said_by_build_and_at_the_end_of_test(tmp_path: Path) -> None:
    (tmp_path / "ext.f90").write_text("subroutine ext(i)\n integer :: i\nend subroutine\n")
    subprocess.run(["gfortran", "-c", "ext.f90"], cwd=tmp_path, check=True)
    made = text({"own": "external :: ext", "stmt": "call ext(i)"})
    line = next(number for number, each in enumerate(made.split("\n"), 1) if "call ext" in each)
    said, done = outcome(tmp_path, made, "ext.o")
    why = "what ext assigns beside its arguments is in no digest, as its source is not known"
    assert f"{why}, line {line}" in said
    assert done.returncode == 0 and f"  a.f90:{line}: {why}" in done.stdout, done.stdout
