"""The functions that an `mpi.h` declares, as its preprocessor gives them."""

from __future__ import annotations

import re
from typing import NamedTuple

ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")
NAME = re.compile(r"([\w*\s])\b([A-Za-z_]\w*)(?=\s*(?:\[[^\]]*\]\s*)*$)")  # of a parameter, in its declaration


class Prototype(NamedTuple):
    """A function of `mpi.h`."""

    name: str
    result: str
    parameters: tuple[str, ...]  # as they are declared
    names: tuple[str, ...]

    @property
    def standard(self) -> str:
        """Its name in the table of roles."""
        name = self.name.partition("_")[2]
        return name[:-2] if name.endswith("_c") else name

    @property
    def acts(self) -> bool:
        """It returns an error code, and does not only convert a handle."""
        return self.result == "int" and not self.name.endswith(("_c2f", "_f2c"))


def prototypes(text: str) -> list[Prototype]:
    """The functions of MPI that a preprocessed `mpi.h` declares."""
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    text = ATTRIBUTE.sub("", text)
    found: dict[str, Prototype] = {}
    for result, name, inside in re.findall(r"(?<=[;}])\s*([\w\s*]+?)\s*\b(MPIX?_\w+)\s*\(([^;{}]*)\)\s*(?=;)", text):
        if not name.endswith("_function") and "typedef" not in result:
            parameters = [" ".join(word.split()) for word in inside.split(",")]
            parameters = [] if parameters in (["void"], [""]) else parameters
            declared = [NAME.sub(r"\1\2_", word) for word in parameters]  # no name of ours is one of theirs
            names = [match[2] + "_" if (match := NAME.search(word)) else "..." for word in parameters]
            found[name] = Prototype(name, result.replace("extern", "").strip(), tuple(declared), tuple(names))
    return list(found.values())
