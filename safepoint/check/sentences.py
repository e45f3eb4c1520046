"""The text of a template → its statements, and what is wrong with its form.

One statement is parsed at a time. After a fault the next one that begins a line is taken up, so that a file tells all
of its faults at once. Nothing here knows what the words mean: that is `language`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from lark import Lark, Token, Tree

GRAMMAR = r"""
statement: LINE | head | BLOCK | size | bound | function | condition
head: HEAD "=" (INT | WORD)
size: N "=" (INT | N "(" WORD ")")
bound: P "=" MINUS? INT
function: F "=" row (OR row)*
row: item (AND item)*
item: (P ":")? NOT? WORD NOT?
condition: F "(" (INT | WORD) ")" (EQUAL | UNLIKE | LESS | MORE) value
value: MINUS? INT | P | WORD | F "(" (INT | WORD) ")"
never: OTHER | WRONG

LINE.9: /(Name|Text)[ \t]*=[^\n]*/i
HEAD.8: /(Kind|Expect)(?!\w)/i
BLOCK.8: /[0-9]+[ \t]*block(?!\w)/i
N.8: /n(?=\s*[=(])/i
F.8: /F([0-9]+|i)(?!\w)/i
P.8: /p([0-9]+|i)(?!\w)/i
INT.7: /[0-9]+(?!\w)/
WORD.6: /[^\W\d]\w*/
OTHER.5: /==|<=|>=|<>/
AND: "&&"
OR: "||"
NOT: "!"
UNLIKE.1: "!="
EQUAL: "="
LESS: "<"
MORE: ">"
MINUS: "-"
WRONG.-9: /\w+|./s
%ignore /#[^\n]*/
%ignore /\s+/
"""
EXPECTED = {
    "LINE": "Name=", "HEAD": "Kind= or Expect=", "BLOCK": "1block, 2block or 3block", "INT": "a number", "N": "n(",
    "F": "F with its number", "P": "p with its number", "AND": "'&&'", "OR": "'||'", "NOT": "'!'", "EQUAL": "'='",
    "UNLIKE": "'!='", "LESS": "'<'", "MORE": "'>'", "MINUS": "'-'", "LPAR": "'('", "RPAR": "')'", "COLON": "':'",
    "$END": "the next statement",
}  # fmt: skip
WORDS = {
    "head": "a word",
    "size": "a communicator",
    "function": "a function of MPI",
    "argument": "the name of an argument",
}
MEANT = {
    "==": "=", "<=": "< with the next number", ">=": "> with the next number", "<>": "!=", "&": "&&", "|": "||",
    "and": "&&", "or": "||", "not": "!",
}  # fmt: skip
ALONE = {  # in a condition
    "AND": "write each condition on a line of its own: all must hold",
    "OR": "write a template for each: all conditions must hold",
    "MINUS": "there is no arithmetic",
}
BEGINNINGS = "LINE", "HEAD", "BLOCK", "N", "F", "P"
MOST_FAULTS = 100  # of a file: a wrong file has as many as lines
LONGEST_SHOWN = 40  # characters


class Fault(NamedTuple):
    """What is wrong with a template, and where: lines and columns count from 1; 0: the file cannot be read."""

    path: Path
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        at = f"{self.line}:{self.column}: " if self.line else " "
        return f"{escaped(str(self.path))}:{at}{self.text}"


class TooMany(Exception):
    """The rest of the file is not looked at."""


class Faults:
    """Those of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[Fault] = []

    def tell(self, at: Token | None, text: str) -> None:
        line, column = ((at.line or 1), (at.column or 1)) if at is not None else (1, 1)
        if len(self.told) >= MOST_FAULTS:
            self.told.append(Fault(self.path, line, column, f"the first {MOST_FAULTS} faults are told, not the rest"))
            raise TooMany
        self.told.append(Fault(self.path, line, column, text))


def escaped(text: str) -> str:
    """No terminal does anything but print it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def shown(text: str) -> str:
    """A word of the file, in quotes."""
    cut = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return f"'{escaped(cut)}'"


@functools.cache
def parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", start=["statement", "never"], maybe_placeholders=False)


def children(tree: Tree[Token]) -> list[Token]:
    """Those that are words, in their order."""
    return [one for one in tree.children if isinstance(one, Token)]


def branches(tree: Tree[Token]) -> list[Tree[Token]]:
    return [one for one in tree.children if isinstance(one, Tree)]


class Broken(NamedTuple):
    """A statement that is none, and what was passed over after it."""

    tokens: list[Token]


Statement: TypeAlias = Tree[Token] | Token | Broken


def listed(words: list[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def _word(tokens: list[Token]) -> str:
    """What a name would be here."""
    kinds = [one.type for one in tokens]
    if kinds[0] == "HEAD":
        return WORDS["head"]
    if kinds[0] == "N":
        return WORDS["size"]
    if kinds[1:2] == ["EQUAL"]:
        return WORDS["function"]
    return WORDS["argument"] if kinds[-1] == "LPAR" else "a constant such as MPI_ANY_TAG"


def _told(found: Token | None, tokens: list[Token], expected: set[str]) -> str:
    """`found '&', expected '&&'`."""
    if found is not None and (meant := MEANT.get(found.lower())):
        return f"found {shown(found)}; write {meant}"
    what = shown(found.rstrip("\n")) if found is not None else "the end of the file"
    if not tokens:
        return f"found {what}, expected a statement: Name=…, 1block, N=…, p1=…, F1=… or F1(…)=…"
    if found is not None and found.type in ALONE and [one.type for one in tokens[:2]] == ["F", "LPAR"]:
        return f"found {what}; {ALONE[found.type]}"
    if "$END" in expected and found is not None and found.type == "INT":
        return f"found {what}, expected the next statement; in a condition an argument stands on the left: F1(tag)<7"
    if tokens[-1].type == "NOT" and found is not None and found.type == "P":
        return f"found {what}, expected the process before the '!': {found}:!…"
    texts = [EXPECTED.get(one) or _word(tokens) for one in (*(expected - {*EXPECTED}), *EXPECTED) if one in expected]
    return f"found {what}, expected {listed(list(dict.fromkeys(texts)))}"


class Machine:
    """The parser of one statement, fed by hand."""

    def __init__(self) -> None:
        self.state: Any = parser().parse_interactive("", "statement")

    def possible(self) -> set[str]:
        """The types of tokens that may come."""
        return {name for name in self.state.choices() if name.isupper()}

    def take(self, token: Token) -> bool:
        """False: it cannot come here."""
        if token.type not in self.state.choices():
            return False
        self.state.feed_token(token)
        return True

    def end(self) -> Tree[Token] | Token:
        """What was read."""
        read: Tree[Token] = self.state.feed_eof()
        return read.children[0]


class Reader:
    """The statements of a text, one after another."""

    def __init__(self, text: str, faults: Faults) -> None:
        self.tokens: Iterator[Token | None] = itertools.chain(parser().lex(text), itertools.repeat(None))
        self.faults = faults
        self.next = next(self.tokens)
        self.line = 0  # of the token before
        self.end = Token("$END", "", line=1 + text.count("\n"), column=len(text) - text.rfind("\n"))

    def take(self) -> Token | None:
        """The next token, which is then the one before."""
        taken, self.next = self.next, next(self.tokens)
        self.line = (taken.end_line or 1) if taken is not None else self.line
        return taken

    def statements(self) -> Iterator[Statement]:
        while self.next is not None:
            yield self.statement()

    def statement(self) -> Statement:
        machine, seen = Machine(), list[Token]()
        while (found := self.next) is not None and machine.take(found):
            seen.append(found)
            self.take()
        possible, skipped = machine.possible(), list[Token]()
        whole = "$END" in possible
        if not whole or (found is not None and found.type not in BEGINNINGS):
            self.faults.tell(found or self.end, _told(found, seen, possible))
            skipped = self.skip()
        return machine.end() if whole else Broken([*seen, *skipped])

    def skip(self) -> list[Token]:
        """Go on to the next line that begins a statement."""
        skipped = []
        while (found := self.next) is not None and not (found.type in BEGINNINGS and (found.line or 1) > self.line):
            skipped.append(found)
            self.take()
        return skipped
