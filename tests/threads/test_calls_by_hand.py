"""The macros of `sp_trace.h`: no warning of a compiler comes from them, and a long double is one of the values."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.traced_threads import Event, compiled, events, ran, run_of

from safepoint.threads import kinds

WARNING = ("-Wall", "-Wextra", "-Wno-unknown-pragmas")
COMPILERS = pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])


def language(compiler: str) -> list[str]:
    return ["-xc++"] if compiler.endswith("+") else []


def recorded(compiler: str, fill: int, at: Path) -> list[Event]:
    at.mkdir()
    program = compiled("only_recorded.c", compiler, *WARNING, f"-DSP_FILL={fill}", *language(compiler))
    (thread,) = run_of(program, at, SP_STATISTICS="1").threads
    return events(thread)


@COMPILERS
def test_arguments_that_are_only_recorded_are_used_without_the_flag_too(compiler: str, tmp_path: Path) -> None:
    """`compiled` takes no warning."""
    program = compiled("only_recorded.c", compiler, *WARNING, "-USP_TRACE", "-DSP_FILL=0", *language(compiler))
    assert ran(program, tmp_path, SP_LEVEL="full").stdout == "done\n"


@COMPILERS
def test_a_long_double_is_recorded_without_the_bytes_that_are_not_of_it(compiler: str, tmp_path: Path) -> None:
    found, other = (recorded(compiler, fill, tmp_path / str(fill)) for fill in (0, 255))
    values = [event.value for event in found if event.kind in (kinds.WRITE, kinds.READ)]
    assert values == [0.1, 1.1, 2.1, 8, -0.1]
    assert [event.kind for event in found].count(kinds.BARRIER) == 2
    assert found[-2].kind == kinds.DIGEST and found[-2].extra == 2
    assert found == other
