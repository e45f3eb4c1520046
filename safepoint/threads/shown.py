"""A statement that prints on the screen, and which lines of an output may be its own."""

from __future__ import annotations

import re
from typing import NamedTuple

FORMS = {
    "i": re.compile(r"[-+]?\d+|\*+"),
    "r": re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[ed]))([ed]?[-+]?\d+)?|[-+]?(nan|inf(inity)?)|\*+", re.I),
    "n": re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([ed]?[-+]?\d+)?|[-+]?(nan|inf(inity)?)|\*+|[tf]|\([^()]*\)", re.I),
}


class Shown(NamedTuple):
    """`words`: the texts in it. `values`: a letter for each value, integer, real or any number; a capital: a time or
    the number of a thread, and nothing that is made of one. `made`: a value is made of such a number, or depends on
    what work a thread was given: it may be another one in a right run, and wrong. `loose`: how many numbers it prints
    is not known; `text`: nor which words. `way`: "only" if OpenMP decides whether it is done, "perhaps" if it may, or
    if a value may depend on OpenMP. `parallel`: threads do it, in an order of chance."""

    file: str
    line: int
    words: tuple[str, ...] = ()
    values: str = ""
    loose: bool = False
    text: bool = False
    way: str = ""
    parallel: bool = False
    made: bool = False

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def unsure(self) -> bool:
        return self.values != self.values.lower()

    @property
    def special(self) -> bool:
        """Two right runs may print other lines here."""
        return self.unsure or self.made or self.way != ""

    @property
    def doubtful(self) -> bool:
        """They may print other values in the same line."""
        return self.unsure or self.made or self.way == "perhaps"

    def numbers(self, line: str, *, strict: bool = False) -> list[str] | None:
        """What it would have printed beside its words; None: it cannot have printed this line. `strict`: its variables
        of type CHARACTER have no words."""
        rest = line
        for word in sorted(self.words, key=len, reverse=True):
            if word not in rest:
                return None
            rest = rest.replace(word, " ", 1)
        found = rest.split()
        if self.text and not strict:
            return found
        if self.text or self.loose:
            return found if all(FORMS["n"].fullmatch(each) for each in found) else None
        if len(found) != len(self.values):
            return None
        fits = all(FORMS[kind].fullmatch(each) for kind, each in zip(self.values.lower(), found, strict=True))
        return found if fits else None


def printers(shown: list[Shown], line: str, other: str | None = None) -> list[Shown]:
    """The statements of which a line may be, or both lines. What has words and may be another one is not taken for the
    text of a variable that is printed elsewhere."""
    lines = [line, *([other] if other is not None else [])]
    strict = any(
        each.special and each.words and all(each.numbers(text) is not None for text in lines) for each in shown
    )
    return [each for each in shown
            if all(each.numbers(text, strict=strict and not each.special) is not None for text in lines)]  # fmt: skip
