"""`.safepoint-check`: what it may say, and what is said of a line that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safepoint.check import config
from safepoint.errors import UsageError


def test_every_line_may_be_left_out(tmp_path: Path) -> None:
    assert config.read(tmp_path) == config.Config()
    assert config.parse(b"\xef\xbb\xbf# nothing\r\n\r\n") == config.Config()


def test_what_it_says(tmp_path: Path) -> None:
    text = (
        b"command = ./solver 'an argument'\nranks = 4\nhang = 2.5\ntemplates = standard my.tpl\nmpicc = mpicc.mpich\n"
    )
    found = config.parse(text)
    assert config.program(found) == ("mpiexec", "-n", "4", "./solver", "an argument")
    assert (found.hang, found.templates, found.mpicc) == (2.5, ("standard", "my.tpl"), "mpicc.mpich")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", ":1: there is no 'x'"),
        ("\nhangs = 1", ":2: there is no 'hangs'; hang?"),
        ("command", ":1: a line is `name = value`, and this is 'command'"),
        ("command = a\ncommand = b", ":2: command is said in line 1 already"),
        ("hang =", ":1: hang has no value"),
        ("hang = soon", ":1: hang takes seconds"),
        ("ranks = 0\ncommand = a", ":1: ranks takes a whole number from 1"),
        ("ranks = 2", ":1: ranks needs command too"),
        ("build = make", ":1: build needs sources too"),
        ("command = 'a", ":1: command: No closing quotation"),
    ],
)
def test_a_line_that_is_wrong_is_told_with_its_number(text: str, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        config.parse(text.encode())
    assert f"{config.NAME}{told}" in str(raised.value)


def test_what_is_no_text_is_told_with_its_line() -> None:
    with pytest.raises(UsageError, match=":2: this is no UTF-8"):
        config.parse(b"hang = 1\n\xff\n")


def test_a_build_is_needed_if_a_source_is_newer(tmp_path: Path) -> None:
    found = config.parse(b"command = solver\nbuild = make\nsources = *.c\n")
    with pytest.raises(UsageError, match=r":3: no file is like \*\.c"):
        config.outdated(found, "solver", tmp_path)
    (tmp_path / "a.c").touch()
    assert config.outdated(found, "solver", tmp_path) == "there is no solver"
    (tmp_path / "solver").touch()
    os.utime(tmp_path / "a.c", (1000, 1000))
    assert config.outdated(found, "solver", tmp_path) == ""
    os.utime(tmp_path / "solver", (500, 500))
    assert "a.c is newer than solver" in config.outdated(found, "solver", tmp_path)
