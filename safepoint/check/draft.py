"""What a template says, statement by statement, before anybody asks whether it makes sense as a whole.

A statement of which a word is wrong is told and left out; `broken` has the functions among them, so that nobody is told
that they are not defined.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lark import Token, Tree

from safepoint.check import vocabulary
from safepoint.check.sentences import Broken, Faults, Statement, branches, children, listed, shown
from safepoint.check.template import EVERY, KINDS, Argument, Constant, Expression, Item, Process

MOST_DIGITS = 18  # a number fits into 64 bits
BLOCKS = {
    **dict.fromkeys(("LINE", "HEAD", "head"), 0),
    **dict.fromkeys(("N", "size", "P", "bound"), 1),
    "function": 2,
    "condition": 3,
}
WHERE = "before the 1block", "in the 1block", "in the 2block", "in the 3block"
WHAT = "Name, Kind, Expect and Text stand", "N=… and p1=… stand", "F1=… stands", "F1(…)=… stands"


class Reference(NamedTuple):
    """`F1(dest)`."""

    at: Token
    argument: Argument
    word: Token  # the argument

    def __str__(self) -> str:
        return f"{self.at}({self.word})"


class Compared(NamedTuple):
    """A condition and where its parts are."""

    left: Reference
    sign: str
    right: Reference | Process | Constant | int | None  # None: it is told
    at: Token  # of what is on the right


@dataclass
class Draft:
    """What was read so far, whether it makes sense or not."""

    faults: Faults
    end: Token  # of the text
    name: str | None = None
    text: str | None = None
    heads: dict[str, Token] = field(default_factory=dict)
    size: int | str | None = None
    sized: Token | None = None
    bound: dict[int, int] = field(default_factory=dict)
    processes: list[tuple[int, Token, str]] = field(default_factory=list)  # all that are named: number, where, how
    functions: dict[int, Expression] = field(default_factory=dict)
    places: dict[int, Token] = field(default_factory=dict)  # of the functions
    conditions: list[Compared] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)  # functions that cannot be read
    blocks: dict[int, Token] = field(default_factory=dict)
    current: int = 0  # block
    missing: set[int] = field(default_factory=set)  # blocks whose line was told to be missing
    known: dict[int, list[str]] = field(default_factory=dict)  # of functions, see `members`
    all_blocks: set[int] = field(default_factory=set)  # that the file has anywhere

    def members(self, number: int) -> list[str]:
        """All functions that one of the template may be, called or not."""
        if number not in self.known:
            every = (item.functions for row in self.functions[number] for item in row)
            self.known[number] = sorted(frozenset().union(*every))
        return self.known[number]

    def number(self, token: Token) -> int:
        if len(token) > MOST_DIGITS:
            self.faults.tell(token, f"{shown(token)} is too large a number")
            return 1
        return int(token)

    def index(self, token: Token, what: str) -> int:
        """Of `F1`, `p1`, `Fi`, `pi`."""
        if token[1:].lower() == "i":
            return EVERY
        found = self.number(Token("INT", token[1:], line=token.line, column=token.column))
        if found == EVERY:
            self.faults.tell(token, f"{token}: {what} are numbered from 1")
            return 1
        return found

    def read(self, statements: list[Statement]) -> None:
        """All of a text, in their order."""
        tokens = (one for one in statements if isinstance(one, Token) and one.type == "BLOCK")
        lost = (token for one in statements if isinstance(one, Broken) for token in one.tokens if token.type == "BLOCK")
        self.all_blocks = {int(token[0]) for token in (*tokens, *lost) if token[0] in "123"}
        for statement in statements:
            self.take(statement)

    def take(self, statement: Statement) -> None:
        """Note what it says."""
        if isinstance(statement, Broken):
            self.lost(statement)
            return
        kind = statement.type if isinstance(statement, Token) else statement.data
        at = statement if isinstance(statement, Token) else children(statement)[0]
        if isinstance(statement, Token):
            self.block(at) if kind == "BLOCK" else self.stands(at, 0)
            if kind == "LINE":
                self.line(at)
            return
        self.stands(at, BLOCKS[kind])
        {
            "head": self.head, "size": self.sizes, "bound": self.bounds, "function": self.function,
            "condition": self.condition,
        }[kind](statement)  # fmt: skip

    def lost(self, statement: Broken) -> None:
        """What it would have defined."""
        kinds = [one.type for one in statement.tokens]
        for at, token in enumerate(statement.tokens):
            if kinds[at : at + 2] == ["F", "EQUAL"] and kinds[at - 1 : at] != ["RPAR"]:
                self.broken.add(self.index(token, "functions"))
            elif kinds[at] == "N":
                self.sized = self.sized or token
            elif kinds[at] == "BLOCK" and token[0] in "123":
                self.blocks.setdefault(int(token[0]), token)

    def block(self, token: Token) -> None:
        number = int(token[0]) if token[1:2].lower() in ("b", " ", "\t") else 0
        if number not in (1, 2, 3):
            self.faults.tell(token, f"found {shown(token)}, expected 1block, 2block or 3block")
        elif number in self.blocks:
            self.faults.tell(token, f"{number}block is there twice, first in line {self.blocks[number].line}")
        elif number < self.current:
            self.faults.tell(token, f"{number}block comes after {self.current}block, expected the order 1, 2, 3")
        if number in (1, 2, 3):
            self.blocks.setdefault(number, token)
            self.current = number

    def stands(self, at: Token, block: int) -> None:
        """In its block? A block whose line is missing is told once."""
        if block == self.current or (block in self.missing and block > self.current):
            return
        if block > self.current and block not in self.all_blocks:
            self.missing.add(block)
            self.faults.tell(at, f"found {shown(at)}, expected {block}block before it")
        else:
            self.faults.tell(at, f"{WHAT[block]} {WHERE[block]}, not {WHERE[self.current]}")

    def line(self, token: Token) -> None:
        word, _, text = token.partition("=")
        key, text = word.strip().lower(), text.strip()
        if not text:
            self.faults.tell(token, f"{word.strip()} is empty")
        if getattr(self, key) is not None:
            self.faults.tell(token, f"{word.strip()} is given twice")
        elif key == "text" and self.name is None:
            self.faults.tell(token, "found Text, expected Name first")
        setattr(self, key, text)

    def head(self, tree: Tree[Token]) -> None:
        word, value = children(tree)
        key = word.lower()
        if key in self.heads:
            self.faults.tell(word, f"{word} is given twice")
        known = KINDS if key == "kind" else ("none", "some")
        if value.lower() not in known and (key == "kind" or value.type != "INT"):
            words = [*known] if key == "kind" else [*known, "a number"]
            self.faults.tell(value, f"found {shown(value)}, expected {listed(words)}")
        elif value.type == "INT":
            self.number(value)
        self.heads[key] = value

    def sizes(self, tree: Tree[Token]) -> None:
        first, *rest = children(tree)
        if self.sized is not None:
            self.faults.tell(first, "N is given twice")
        self.sized = first
        if rest[0].type == "INT":
            self.size = self.number(rest[0])
            if self.size == 0:
                self.faults.tell(rest[0], "N is 0, expected at least one process")
                self.size = None
            return
        comm = rest[1]
        name = vocabulary.constant(comm)
        if name in ("MPI_COMM_WORLD", "MPI_COMM_SELF"):
            self.size = 1 if name == "MPI_COMM_SELF" else name
        else:
            self.faults.tell(comm, f"found {shown(comm)}, expected MPI_COMM_WORLD: others have no members yet")

    def bounds(self, tree: Tree[Token]) -> None:
        word, *value = children(tree)
        process, rank = self.index(word, "processes"), self.number(value[-1])
        if process == EVERY:
            self.faults.tell(word, "pi is every process, and has no rank of its own")
        elif process in self.bound:
            self.faults.tell(word, f"{word} is given twice")
        elif len(value) > 1:
            self.faults.tell(value[0], f"rank -{value[-1]} is negative, expected a rank of MPI_COMM_WORLD")
        elif rank in self.bound.values():
            other = next(number for number, one in self.bound.items() if one == rank)
            self.faults.tell(word, f"p{other} is rank {rank} already: write p{other} for both")
        else:
            self.bound[process] = rank
            self.processes.append((process, word, f"{word} has a rank"))

    def function(self, tree: Tree[Token]) -> None:
        word = children(tree)[0]
        number = self.index(word, "functions")
        if number in self.places:
            self.faults.tell(word, f"{word} is defined twice, first in line {self.places[number].line}")
            return
        process: Token | None = None
        rows = []
        for row in branches(tree):
            items = []
            for one in branches(row):
                process = next((token for token in children(one) if token.type == "P"), process)
                items.append(self.item(one, word, process))
            rows.append(tuple(item for item in items if item is not None))
        self.places[number] = word
        if all(rows) and [len(branches(row)) for row in branches(tree)] == [len(row) for row in rows]:
            self.functions[number] = tuple(rows)
        else:
            self.broken.add(number)

    def item(self, tree: Tree[Token], whose: Token, process: Token | None) -> Item | None:
        tokens = children(tree)
        word = next(token for token in tokens if token.type == "WORD")
        signs = [token for token in tokens if token.type == "NOT"]
        if len(signs) > 1:
            self.faults.tell(signs[1], f"{shown(word)} is negated twice")
        functions = vocabulary.functions(word)
        if functions is None:
            near = vocabulary.nearest_function(word)
            self.faults.tell(word, f"no function of MPI is named {shown(word)}" + (f"; {near}?" if near else ""))
        if process is None:
            self.faults.tell(word, f"{whose} says no process, expected one such as p1:{word}")
            return None
        number = self.index(process, "processes")
        if (number == EVERY) != (whose[1:].lower() == "i"):
            every = f"pi is every process: write Fi=pi:{word}"
            told = every if number == EVERY else f"Fi is of every process: write pi:{word}"
            self.faults.tell(process if process in tokens else word, told)
        elif number != EVERY and process in tokens:
            self.processes.append((number, process, f"{whose} uses {process}"))
        return Item(number, functions, str(word), bool(signs)) if functions else None

    def reference(self, at: Token, word: Token) -> Reference:
        number = self.index(at, "functions")
        name = self.number(word) if word.type == "INT" else word.lower()
        return Reference(at, Argument(number, name), word)

    def condition(self, tree: Tree[Token]) -> None:
        first, word, sign = children(tree)
        value = children(branches(tree)[0])
        at = value[0]
        right: Reference | Process | Constant | int | None
        if at.type == "F":
            right = self.reference(at, value[1])
        elif at.type == "P":
            number = self.index(at, "processes")
            right = Process(number)
            if number == EVERY:
                self.faults.tell(at, "found pi, expected one process, such as p1")
                return
            self.processes.append((number, at, f"{at} is compared"))
        elif at.type == "WORD":
            right = self.constant(at)
        else:
            right = -self.number(value[1]) if at.type == "MINUS" else self.number(at)
        left = self.reference(first, word)
        self.conditions.append(Compared(left, str(sign), right, at))

    def constant(self, word: Token) -> Constant | None:
        if (name := vocabulary.constant(word)) is not None:
            return Constant(name)
        near = vocabulary.nearest_constant(word)
        self.faults.tell(word, f"no constant of MPI is named {shown(word)}" + (f"; {near}?" if near else ""))
        return None
