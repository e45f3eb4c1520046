"""The names of the predefined constants of an MPI library, from its `mpi.h`.

In one library a handle is a number, in another an address, which no two processes have in common: so each rank writes
down its own (`watch.c`). The names that the standard has, by kind, are in the table beside this module.
"""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path(__file__).with_name("constants.txt")
MACRO = re.compile(r"^#define (MPI_[A-Z0-9_]+) (\S.*)$", re.M)  # an object, and not empty
ENUM = re.compile(r"\benum\b[^{};]*\{([^}]*)\}")
NAME = re.compile(r"\bMPI_[A-Z0-9_]+\b(?=\s*(?:[=,]|$))")
# What is no constant of MPI, or one of Fortran, or of the interfaces for tools, or a length.
OTHERS = re.compile(
    r"MPI_(T_|F_|F08_|MAX_|ABI_|FORTRAN_|STATUS_SIZE|\w*_(DEFINED|SPEC)$|\w*_FN(_|$)|\w*VERSION|\w+_H(_|$)"
    r"|(?!U?INT\d+_)\w+_T$)"
)
GONE = "REMOVED"  # in what stands for the name of one that this MPI has no more


def names(macros: str, text: str) -> list[str]:
    """Of the constants in an `mpi.h`: `macros` as a preprocessor lists them, and its text after it."""
    found = dict(MACRO.findall(macros))
    for inside in ENUM.findall(text):
        found = dict.fromkeys(NAME.findall(inside), "") | found
    return sorted(name for name, body in found.items() if GONE not in body and not OTHERS.match(name))
