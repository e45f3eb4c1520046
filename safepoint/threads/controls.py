"""What a statement of input, output or allocation gives values by its specifiers: `iostat=`, `exist=`, `stat=`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

OUTPUTS = {"iostat", "stat", "size", "iolength"}  # of any statement
NUMBERS = {"newunit", "number", "id"}  # that nothing fixes, in two right runs neither
MESSAGES = {"iomsg", "errmsg"}  # have a value after an error alone
GIVEN = {"unit", "file", "id", "err"}  # of INQUIRE, which gives values to all others
SPECIFIERS = ("Io_Control_Spec", "Connect_Spec", "Close_Spec", "Inquire_Spec", "Position_Spec", "Flush_Spec",
              "Wait_Spec", "Alloc_Opt", "Dealloc_Opt")  # fmt: skip
STATEMENTS = ("Read_Stmt", "Write_Stmt", "Open_Stmt", "Close_Stmt", "Inquire_Stmt", "Allocate_Stmt", "Deallocate_Stmt",
              "Rewind_Stmt", "Backspace_Stmt", "Endfile_Stmt", "Flush_Stmt", "Wait_Stmt")  # fmt: skip


def results(node: Any) -> list[str]:
    """The designators that have a value then, and always the same one."""
    return [text for name, text in _given(node) if name not in NUMBERS | MESSAGES]


def chances(node: Any) -> list[tuple[str, str]]:
    """The other ones, and why they are in no digest."""
    found = [(name, text) for name, text in _given(node) if name in NUMBERS | MESSAGES]
    number, message = "it is a number that no program chooses", "it has a value only after an error"
    return [(text, number if name in NUMBERS else message) for name, text in found]


def group(node: Any) -> str:
    """The NAMELIST that a READ names by `nml=`; empty if it names none."""
    named = (text for name, text in _specifiers(node) if name == "nml") if type(node).__name__ == "Read_Stmt" else ()
    return next(iter(named), "")


def _given(node: Any) -> Iterator[tuple[str, str]]:
    kind = type(node).__name__
    if kind == "Inquire_Stmt" and node.children[1] is not None:
        yield "iolength", str(node.children[1])
    for name, text in _specifiers(node):
        inquired = kind == "Inquire_Stmt" and name not in GIVEN
        of_file = kind in ("Read_Stmt", "Write_Stmt") if name == "id" else name in NUMBERS
        if name in OUTPUTS or name in MESSAGES or inquired or of_file:
            yield name, text


def _specifiers(node: Any) -> Iterator[tuple[str, str]]:
    from fparser.two.utils import walk

    for found in walk(node) if type(node).__name__ in STATEMENTS else ():
        if type(found).__name__ in SPECIFIERS and found.children[0] is not None:
            yield str(found.children[0]).lower(), str(found.children[1])
