"""What is recorded where: `threads.toml`, `!$sp` lines, lines that a compiler refused; what is left out is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed.threads_chain import instrumented
from testbed.threads_snippets import CONSTRUCTS, HEAD, program

from safepoint.errors import UsageError
from safepoint.threads import choices, fortran
from safepoint.threads.fortran import Instrumented

LOOP = HEAD.count("\n") + 1  # the line of the directive
BODY = CONSTRUCTS["parallel do"]


def made(directory: Path, body: str = BODY, settings: dict[str, object] | None = None, **more: object) -> Instrumented:
    return instrumented(directory, program(body), "one.f90", settings=choices.choices(settings or {}), **more)


def lines_of(found: Instrumented, type: str) -> set[int]:
    return {site.line for site in found.sites if site.type == type}


def test_without_settings_all_is_recorded(tmp_path: Path) -> None:
    found = made(tmp_path)
    assert LOOP + 2 in lines_of(found, "variable-write") & lines_of(found, "variable-read")
    assert (found.statements, found.recorded, found.left_out) == (8, 8, [])


def test_levels_by_class_file_lines_and_procedure(tmp_path: Path) -> None:
    assert lines_of(made(tmp_path, settings={"levels": {"variables": "write"}}), "variable-read") == set()
    only = made(tmp_path, settings={"file": {"one.f90": {"level": "write", "lines": [{"from": LOOP, "level": "off"}]}}})
    assert lines_of(only, "variable-read") == set() and lines_of(only, "region") == set()
    region = made(tmp_path, settings={"procedure": {"one": {"level": "region"}}})
    assert lines_of(region, "region") == {LOOP} and lines_of(region, "variable-write") == set()
    assert "sp_digest" in region.text and "sp_iter" not in region.text


def test_lines_of_sp_in_the_source(tmp_path: Path) -> None:
    off = made(tmp_path, "  !$sp off\n  s = 1\n  !$sp on\n  t = 2\n")
    assert LOOP + 1 not in lines_of(off, "variable-write") and LOOP + 3 in lines_of(off, "variable-write")
    write = made(tmp_path, "  !$sp level write\n  s = t\n  !$sp level full\n  t = s\n")
    assert LOOP + 1 not in lines_of(write, "variable-read") and LOOP + 3 in lines_of(write, "variable-read")
    strange = made(tmp_path, "  !$sp lvel\n")
    assert strange.warnings == [(LOOP, "`!$sp lvel` is not known, and does nothing")]


def test_watched_variables_are_digested_at_each_region(tmp_path: Path) -> None:
    watch = made(tmp_path, "  !$sp watch b, s\n" + BODY)
    names = [site.name for site in watch.sites if site.type == "array"]
    assert names.count("b") >= 2 and names.count("s") == 2
    by_file = made(tmp_path, settings={"digest": ["b"]})
    assert [site.name for site in by_file.sites if site.type == "array" and site.line > LOOP][-1:] == ["b"]


def test_below_a_depth_no_iteration_is_traced(tmp_path: Path) -> None:
    assert made(tmp_path, CONSTRUCTS["nested"]).text.count("sp_iter(") == 2
    assert made(tmp_path, CONSTRUCTS["nested"], {"depth": 1}).text.count("sp_iter(") == 1


def test_nothing_is_inserted_at_a_line_that_is_to_be_untouched(tmp_path: Path) -> None:
    found = made(tmp_path, untouched=frozenset({LOOP + 2}))
    assert LOOP + 2 not in {site.line for site in found.sites}


def test_sites_begin_at_the_given_number(tmp_path: Path) -> None:
    assert [site.number for site in made(tmp_path, first=100).sites][:2] == [100, 101]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"levls": {}}, "levls is not known; there are"),
        ({"levels": {"variables": "some"}}, "levels.variables: level 'some' is not one of off"),
        ({"levels": {"loops": "off"}}, r"loops in \[levels\] is not known"),
        ({"levels": "off"}, "levels is 'off': a table is wanted"),
        ({"depth": "a"}, "depth is 'a': a number is wanted"),
        ({"levels": {"depth": -1}}, "levels.depth is -1: a number"),
        ({"edges": True}, "edges is True: a number"),
        ({"digest": "u"}, "digest is 'u': a list of variables is wanted"),
        ({"levels": {"digest": ["u(3)"]}}, "levels.digest is .*: a list of variables"),
        ({"digest": [1]}, "digest is .*: a list of variables"),
        ({"file": {"x.f90": {"lvl": 3}}}, r"lvl in \[file.x.f90\] is not known; there are level, lines"),
        ({"file": {"x.f90": "off"}}, "file.x.f90 is 'off': a table"),
        ({"file": {"x.f90": {"level": 3}}}, "file.x.f90.level: level 3 is not one of"),
        ({"file": {"x.f90": {"lines": {"from": 3}}}}, "file.x.f90.lines is a table: a list of tables"),
        ({"file": {"x.f90": {"lines": [{"to": 3}]}}}, "file.x.f90.lines: lines go from = N to = M"),
        ({"file": {"x.f90": {"lines": [{"from": "3"}]}}}, "file.x.f90.lines.from is '3': a number"),
        ({"file": {"x.f90": {"lines": [{"from": 3, "to": 2}]}}}, ".* M is not before N"),
        ({"procedure": {"p": {"lines": []}}}, r"lines in \[procedure.p\] is not known; there are level"),
        ({"procedure": ["p"]}, r"procedure is \['p'\]: a table"),
    ],
)
def test_settings_that_are_none_are_refused_with_file_key_and_cause(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=f"^mine.toml: {said}"):
        choices.choices(given, "mine.toml")


def test_what_is_watched_and_names_nothing_is_told(tmp_path: Path) -> None:
    found = made(tmp_path, "  !$sp watch s, nope%x, b(\n" + BODY)
    assert [(line, text.partition(":")[0]) for line, text in found.warnings if "watch" in text] == [
        (LOOP, "`!$sp watch b(`"), (LOOP, "`!$sp watch nope%x`"),
    ]  # fmt: skip
    assert [site.name for site in found.sites if site.type == "array"].count("s") == 2


def test_a_file_of_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "threads.toml"
    path.write_text('depth = 1\nedges = 2\ndigest = ["U"]\n[levels]\nvariables = "write"\nprocedures = "off"\n')
    found = choices.read(path)
    assert (found.depth, found.edges, found.digest, found.variables, found.procedures) == (1, 2, ("u",), "write", False)
    path.write_text("depth = [")
    with pytest.raises(UsageError):
        choices.read(path)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("  call cpu_time(t)\n", "a time"),
        ("  a(a_index(a(2))) = 1\n", "its subscript calls a_index"),
        ("  forall (i = 1:n) a(i) = i\n", "assigned in FORALL"),
        ("  do concurrent (i = 1:n)\n    a(i) = i\n  end do\n", "in DO CONCURRENT"),
        ("  !$ s = 3\n", "only with OpenMP"),
    ],
)
def test_what_is_not_recorded_is_said_with_its_line(body: str, why: str, tmp_path: Path) -> None:
    found = made(tmp_path, body)
    assert why in [reason for line, reason in found.left_out if line >= LOOP], found.left_out


def test_a_text_that_is_no_fortran_is_unreadable_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.f90"
    path.write_text("program bad\n  integer :: i\n  i = = 3\nend program bad\n")
    with pytest.raises(fortran.Unreadable) as raised:
        fortran.instrument(path)
    assert raised.value.line == 3


def test_a_directive_that_does_not_fit_leaves_its_procedure_as_it_is(tmp_path: Path) -> None:
    found = made(tmp_path, "  !$omp parallel\n  s = 3\n")
    assert found.warnings == [(LOOP, "one is compiled as it is: `parallel` without its end")]
    assert "call sp_" not in found.text


CALLER = """\
program one
  implicit none
  real(8) :: from, to
  call stamp(from)
  call stamp(to)
  call tell(to - from, to)
end program one
"""
CALLED = """\
subroutine stamp(t)
  implicit none
  real(8), intent(out) :: t
  call cpu_time(t)
end subroutine stamp
subroutine tell(span, t)
  implicit none
  real(8), intent(in) :: span, t
  real(8) :: half
  half = t / 2
  print *, span > 1e6, half > 1e9
end subroutine tell
"""


def test_clocks_are_followed_through_the_calls_of_all_sources(tmp_path: Path) -> None:
    """The source that calls comes after the one that is called, and the clock goes to and fro."""
    called, caller = tmp_path / "called.f90", tmp_path / "caller.f90"
    called.write_text(CALLED)
    caller.write_text(CALLER)
    modules: dict[str, object] = {}
    fortran.survey([(path, choices.Choices()) for path in (called, caller)], modules)
    for path, lines in ((called, [4, 10]), (caller, [4, 5])):
        found = fortran.instrument(path, modules=modules)
        assert found.left_out == [(line, "a time") for line in lines]
        assert not {site.name for site in found.sites} & {"t", "from", "to", "half"}
