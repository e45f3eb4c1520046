"""The functions of MPI and their arguments, as the C binding has them: what a template may name, without a compiler.

The table beside this module is of MPI 5.0 and older, without the tools interface; large counts (`MPI_Send_c`) are the
same functions. A function that it lacks needs a line there.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("signatures.txt")
HANDLES = {
    "MPI_Comm": "comm", "MPI_Datatype": "type", "MPI_Request": "request", "MPI_Op": "op", "MPI_Group": "group",
    "MPI_Win": "win", "MPI_File": "file", "MPI_Message": "message", "MPI_Info": "info", "MPI_Errhandler": "errhandler",
    "MPI_Session": "session",
}  # fmt: skip
RANKS = {"dest", "source", "root", "target_rank"}  # of the communicator, or of that of the window
TAGS = {"tag", "sendtag", "recvtag"}
DECLARED = re.compile(r"(?:const )?(\w+) (\**)(\w+)((?:\[\d*\])*)")


class Parameter(NamedTuple):
    """One argument of a function."""

    name: str
    kind: str  # one of HANDLES, "rank", "tag", "int", "buffer" (an address), "status", "text", "other"
    by: str  # how it is passed: "value", "pointer" (to one), "array"
    const: bool  # what it points to is only read


class Signature(NamedTuple):
    name: str  # without MPI_
    parameters: tuple[Parameter, ...]

    def at(self, name: str) -> int | None:
        """The place of an argument, from 0."""
        return _places(self).get(name)


@functools.cache
def _places(of: Signature) -> dict[str, int]:
    return {one.name: at for at, one in reversed(tuple(enumerate(of.parameters)))}


def parameter(text: str) -> Parameter:
    """Of its declaration in C."""
    found = DECLARED.fullmatch(text.strip())
    if found is None:
        return Parameter(text.split()[-1].strip("*[]."), "other", "value", False)
    of, stars, name, sizes = found.groups()
    const = text.strip().startswith("const")
    by = "array" if sizes or name.startswith("array_of") else "pointer" if stars else "value"
    if of in HANDLES:
        kind = HANDLES[of]
    elif of == "MPI_Status":
        kind = "status"
    elif of == "void":
        kind, by = ("buffer", "value") if stars == "*" else ("other", "pointer")
    elif of == "char":
        kind = "text"
    elif of in ("int", "MPI_Aint", "MPI_Offset", "MPI_Count"):
        kind = "rank" if name in RANKS and by == "value" else "tag" if name in TAGS else "int"
    else:
        kind = "other"
    return Parameter(name, kind, by, const)


@functools.cache
def signatures() -> dict[str, Signature]:
    """All, by name."""
    found = {}
    for line in TABLE.read_text("utf-8").splitlines():
        name, _, declared = line.partition(":")
        found[name] = Signature(name, tuple(parameter(word) for word in declared.split(",") if word.strip()))
    return found
