"""What procedures assign of what is handed to them: objects of bindings and pointers, arguments of functions, and what
addresses and pointers lead to. It is digested, or said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fparser")
pytest.importorskip("numpy")

from safepoint.threads import fortran

PROGRAM = """\
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
  !$omp parallel
  !$omp critical
  {stmt}
  !$omp end critical
  !$omp end parallel
  print *, 'done'
end program
"""


def text(stmt: str, own: str = "", components: str = "") -> str:
    made = PROGRAM.replace("{stmt}", stmt).replace("{own}", own)
    return made.replace("{components}", components)


def digests(text: str, here: Path) -> tuple[list[str], str]:
    """The digests at the end of the region, and what is said of the lines."""
    (here / "a.f90").write_text(text)
    made = fortran.instrument(here / "a.f90")
    region = next(site for site in made.sites if site.type == "region")
    found = [site.name for site in made.sites if site.type == "array" and site.line == region.line2]
    return found, "; ".join(why for _, why in made.left_out)


POINTER = "procedure(simple), pointer :: go => null()"
CASES = {
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


@pytest.mark.parametrize("stmt, name", CASES.values(), ids=CASES.keys())
def test_what_is_handed_on_and_assigned_is_in_a_digest(stmt: str, name: str, tmp_path: Path) -> None:
    found, _ = digests(text(stmt), tmp_path)
    assert name in found, found


def test_the_object_of_a_procedure_pointer_is_in_a_digest(tmp_path: Path) -> None:
    assert "x%n" in digests(text("call x%go()", "x%go => up", POINTER), tmp_path)[0]


@pytest.mark.parametrize("stmt, name", [
    ("call x%look(k)", "x"), ("call x%free(3)", "x"), ("k = old(b, i)", "i"), ("k = f(a, b)", "b"),
    ("k = max(b, 1)", "b"),
])  # fmt: skip
def test_what_is_only_read_is_in_none(stmt: str, name: str, tmp_path: Path) -> None:
    found, left = digests(text(stmt), tmp_path)
    assert not [each for each in found if each.split("%")[0] == name] and "no digest" not in left, (found, left)


STATUS = {
    "iostat of read": ("read (5, *, iostat=b) k", "b"),
    "iostat of write": ("write (6, *, iostat=b) k", "b"),
    "iostat of open, in if": ("if (k == 0) open (7, file='a', iostat=b)", "b"),
    "exist and opened": ("inquire (file='a', exist=l(1), opened=l(2))", "l"),
    "iolength": ("inquire (iolength=b) r", "b"),
    "stat of allocate": ("allocate (g, stat=b)", "b"),
    "stat of deallocate": ("deallocate (g, stat=b)", "b"),
    "size": ("read (5, '(i1)', advance='no', size=b, iostat=k) i", "b"),
}


@pytest.mark.parametrize("stmt, name", STATUS.values(), ids=STATUS.keys())
def test_what_a_specifier_gives_a_value_is_in_a_digest(stmt: str, name: str, tmp_path: Path) -> None:
    made = text(stmt).replace("integer, target :: a(4)", "logical :: l(2)\n integer, target :: a(4)")
    assert name in digests(made, tmp_path)[0]


@pytest.mark.parametrize("stmt, why", [
    ("open (newunit=b, file='a')", "b is in no digest, as it is a number that no program chooses"),
    ("read (5, *, iomsg=s, iostat=k) i", "s is in no digest, as it has a value only after an error"),
    ("read (5, nml=group)", "what NAMELIST group has is in no digest"),
    ("call far(at)", "what at leads to is in no digest, as it is an address"),
    ("call far(at)", "what q of far leads to is in no digest"),
])  # fmt: skip
def test_what_cannot_be_digested_is_said(stmt: str, why: str, tmp_path: Path) -> None:
    own = "character(9) :: s\n namelist /group/ b\n integer, target :: a(4)"
    assert why in digests(text(stmt).replace("integer, target :: a(4)", own), tmp_path)[1]


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
@pytest.mark.parametrize("stmt", ["call x%up()", "k = 0 * x%next()", "if (f(a) > 0) k = 1", "call follows(z)",
                                  "call far(c_loc(b))", "read (5, *, iostat=b) k"])  # fmt: skip
def test_a_call_by_each_thread_is_a_difference(stmt: str, tmp_path: Path) -> None:
    (tmp_path / "a.f90").write_text(text(stmt))
    line = [sys.executable, "-m", "safepoint", "threads"]
    build = [*line, "build", "-o", "a", "--", "gfortran", "-fopenmp", "a.f90"]
    subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=True)
    done = subprocess.run([*line, "test", "--", "./a"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          input="1\n2\n")  # fmt: skip
    assert done.returncode == 1, done.stdout


def test_what_a_polymorphic_object_may_have_beside_its_type_is_said(tmp_path: Path) -> None:
    for stmt in ("call unknown(g)", "call g%up()"):
        _, left = digests(text(stmt), tmp_path)
        assert "g as child is in no digest: it is polymorphic" in left, left


@pytest.mark.parametrize("components", ["integer, private :: n = 0", "private\n integer :: n = 0"])
def test_a_private_component_of_another_module_is_said_and_not_digested(components: str, tmp_path: Path) -> None:
    made = text("call x%up()").replace(
        "integer :: n = 0, other = 0\n    ", f"{components}\n integer, public :: other = 0\n"
    )
    found, left = digests(made, tmp_path)
    assert "x%n" not in found and "x%n is in no digest: component n of type t is PRIVATE" in left, (found, left)
