"""Which lines the preprocessor keeps: `#ifdef` and its like, with the names of the user's line and `_OPENMP`."""

from __future__ import annotations

import re
from collections.abc import Sequence

OPENMP = "_OPENMP"
WORDS = re.compile(r"defined\s*\(\s*(\w+)\s*\)|defined\s+(\w+)|[A-Za-z_]\w*|\d+[uUlL]*|&&|\|\||[<>=!]=|[-+*/()<>!]|\S")
PYTHON = {"&&": " and ", "||": " or ", "!": " not ", "/": "//"}


class Conditions:
    """`active`: the next line is kept. `of_openmp`: a condition on `_OPENMP` decides about it."""

    def __init__(self, defines: Sequence[str]) -> None:
        self.values = {OPENMP: "201511"}
        for define in defines:
            name, _, value = define.partition("=")
            self.values[name] = value or "1"
        self.stack: list[tuple[bool, bool, bool]] = []  # kept now, some branch was kept, about OpenMP

    @property
    def active(self) -> bool:
        return all(now for now, _, _ in self.stack)

    @property
    def of_openmp(self) -> bool:
        return any(openmp for _, _, openmp in self.stack)

    def see(self, line: str) -> None:
        found = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        if not found:
            return
        word, rest = found[1], found[2]
        if word in ("ifdef", "ifndef", "if"):
            kept = self.true(rest) if word == "if" else (rest.split()[:1] or [""])[0] in self.values
            kept = kept != (word == "ifndef")
            self.stack.append((kept, kept, OPENMP in rest))
        elif word in ("else", "elif") and self.stack:
            _, some, openmp = self.stack.pop()
            kept = not some and (word == "else" or self.true(rest))
            self.stack.append((kept, some or kept, openmp or OPENMP in rest))
        elif word == "endif" and self.stack:
            self.stack.pop()
        elif word == "define" and self.active and (name := re.match(r"(\w+)\s*(.*)", rest)):
            self.values.setdefault(name[1], name[2])
        elif word == "undef" and self.active:
            self.values.pop(rest.strip(), None)

    def true(self, text: str) -> bool:
        """The value of a condition; what cannot be read is taken as false."""
        parts = []
        for found in WORDS.finditer(re.sub(r"/\*.*?\*/", "", text)):
            name = found[1] or found[2]
            word = found[0]
            if name:
                parts.append(str(name in self.values))
            elif word[0].isalpha() or word[0] == "_":
                value = self.values.get(word, "0")
                parts.append(value if value.isdigit() else "0")
            elif word[0].isdigit():
                parts.append(str(int(word.rstrip("uUlL"))))
            elif re.fullmatch(r"&&|\|\||[<>=!]=|[-+*/()<>!]", word):
                parts.append(PYTHON.get(word, word))
            else:
                return False
        try:
            return bool(eval("".join(parts), {"__builtins__": {}}))  # only numbers and operators are in it
        except (SyntaxError, ArithmeticError, TypeError):
            return False
