"""Random functions of Python, full of aliases."""

from __future__ import annotations

import random
from collections.abc import Sequence

from testbed.deps_outcomes import indented

WILD = (
    "bump",
    "look",
    "keep",
    "kept",
    "same",
    "o.",
    "drip",
    "noted",
    "h =",
    "h(",
    "def",
    "match",
    "it =",
    "next",
    "it)",
    "*r",
)
NUMBERS, LISTS, ROWS = ("x", "y", "z"), ("a", "b", "c"), ("r", "s")
FIRST = [
    "x = 1",
    "y = n + 1",
    "z = 0",
    "a = [1, 2, 3]",
    "b = [0] * 4",
    "c = [4, 1]",
    "r = [[0, 1], [7, 8]]",
    "s = [[5], [6, 6]]",
    "d = {1: [8]}",
    "it = None",
    "h = None",
]
KNOWN = len(FIRST)  # the first statements, which set each variable
LAST = "return x, y, z, a, b, c, r, s, d, it and list(it)"


class Writer:
    """Makes up statements of a few sorts, others for each seed: one call can make an analyser careful everywhere."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.wild = self.rng.choice([0.0, 0.0, 0.1, 0.5])  # the share of sorts that run code which cannot be seen
        self.sorts = self.rng.randrange(4, 30)
        self.chosen: dict[str, list[int]] = {}

    def program(self, length: int) -> list[str]:
        self.outside = self.rng.random() < 0.5  # whether its parameters are used
        if self.rng.random() < 0.5:
            first = [
                *FIRST[:5],
                f"c = {self.one(['a', 'p', 'b[:]'])}",
                f"r = [{self.one(['a', 'p', 'c'])}, b]",
                f"s = {self.one(['r', 'm', '[c, [1]]'])}",
                *FIRST[8:],
            ]
            return [*first, *(self.small() for _ in range(length)), LAST]
        return [*FIRST, *(self.statement() for _ in range(length)), LAST]

    def small(self) -> str:
        """Statements that change one object under several names, and do little else."""
        names = [*LISTS, *(["p", "q"] if self.outside else [])]
        v, w, r, x, y = self.one(names), self.one(names), self.one(ROWS), self.one(NUMBERS), self.one(NUMBERS)
        k, a = self.rng.randrange(3), self.one(LISTS)
        return self.one(
            [
                f"{v}.append({k})",
                f"{v}[0] = {k}",
                f"{v}[-1] += {k}",
                f"{x} = {v}[0]",
                f"{x} = len({v})",
                f"{x} = {k}",
                f"{x} = {y} + {k}",
                f"{a} = {v}",
                f"{a} = {r}[0]",
                f"{r}[0] = {v}",
                f"{r}[0].append({k})",
                f"{r} = [{v}, {w}]",
                f"{x} = sum({v})",
                f"{v} += [{k}]",
                f"{a} = [{k}, {k}]",
                f"{x} = {r}[0][-1]",
                f"{self.one(ROWS)} = {r}",
                f"for {x} in {v}[:2]:\n    {w}.append({k})",
                f"{a} = {v} + [{k}]",
                f"d[1] = {v}",
                f"d[1].append({k})",
                f"{v}.sort()",
                f"{x} = {v}.pop()",
                f"{a} = {v}[:]",
                *(
                    (
                        f"keep({v})",
                        f"{a} = kept({k})",
                        f"bump({v})",
                        f"{x} = 6 // {y}",
                        f"{x} = {v}[3]",
                        f"o.v = {v}",
                        f"GL[0] = {k}",
                        f"{x} = GL[0]",
                        f"{a} = GL",
                        f"{a} = o.v",
                        f"print({v})",
                        f"print({x})",
                        f"{x} = look({v})",
                        f"h = {v}.append",
                        f"h and h({k})",
                        f"it = ({k} + t for t in {v})",
                        f"{x} = it and sum(it) or 0",
                    )
                    if self.wild
                    else ()
                ),
            ]
        )

    def one(self, of: Sequence[str]) -> str:
        return self.rng.choice(of)

    def sort(self, kind: str, of: Sequence[str]) -> str:
        """One of the sorts of this program. They are known by their place in the list."""
        if kind not in self.chosen:
            tame = [n for n, each in enumerate(of) if not any(word in each for word in WILD)]
            wild = [n for n in range(len(of)) if n not in tame]
            many = min(len(tame), self.sorts)
            self.chosen[kind] = self.rng.sample(tame, many) + self.rng.sample(wild, int(len(wild) * self.wild))
        return of[self.rng.choice(self.chosen[kind])]

    def number(self, deep: bool = True) -> str:
        if not deep or self.rng.random() < 0.4:
            return self.one([*NUMBERS, "n", str(self.rng.randrange(5)), "GN"])
        a, b, v = self.number(False), self.number(False), self.list(False)
        return self.sort(
            "number",
            [
                f"{a} + {b}",
                f"{a} * {b} % 97",
                f"len({v})",
                f"sum({v})",
                f"{v}[{a} % len({v})]",
                f"max({v})",
                f"abs({a} - {b})",
                f"(y := {a})",
                f"min({a}, {b})",
                f"look({v})",
                f"{v}[-1]",
                f"({a} if {b} > 2 else {a})",
                f"int({a} in {v})",
                f"math.gcd({a}, {b})",
                "o.n",
            ],
        )

    def list(self, deep: bool = True) -> str:
        names = [*LISTS, *(["p", "q", "GL"] if self.outside else [])]
        if not deep or self.rng.random() < 0.4:
            return self.one(names)
        v, w, k, m = self.one(names), self.one(names), self.number(False), self.rows()
        return self.sort(
            "list",
            [
                f"{v}[:]",
                f"{v}[1:] + [{k}]",
                f"[t + {k} for t in {v}]",
                f"{v} + {w}",
                f"[{k}] * 3",
                f"{m}[{k} % len({m})]",
                f"list({v})",
                f"sorted({v})",
                f"same({v})",
                f"kept({k})",
                f"({v} or {w})",
                f"({v} if {k} else {w})",
                f"[*{v}, {k}]",
                f"list(reversed({v}))",
                "o.v",
                f"d.get({k}, {v})",
                f"{v}.copy()",
                f"list({m}[0])",
            ],
        )

    def rows(self) -> str:
        return self.one([*ROWS, *(["m"] if self.outside else [])])

    def statement(self, depth: int = 0) -> str:
        x, v, w, k, m = (
            self.one(NUMBERS),
            self.one([*LISTS, *(["p", "q"] if self.outside else [])]),
            self.list(False),
            self.number(),
            self.rows(),
        )
        a, r = self.one(LISTS), self.one(ROWS)
        plain = [
            f"{x} = {k}",
            f"{x} = {k}",
            f"{x} += {k}",
            f"{x}, {self.one(NUMBERS)} = {k}, {self.number()}",
            f"{a} = {self.list()}",
            f"{a} = {self.list()}",
            f"{v} += [{k}]",
            f"{a} += {w}",
            f"{v}.append({k})",
            f"{v}[{k} % len({v})] = {self.number()}",
            f"{v}[{k} % len({v})] += {x}",
            f"{v}.reverse()",
            f"{v}.sort()",
            f"{v}.extend({w}[:2])",
            f"{v}[:] = {self.list()}",
            f"{v}[1:1] = [{x}]",
            f"{r} = [{v}, {w}]",
            f"{r} = {m}",
            f"{m}[{k} % len({m})] = {v}",
            f"{m}.append({w})",
            f"{m}[0].append({x})",
            f"{m}[-1][0] += {x}",
            f"{r} = list(reversed({m}))",
            f"d[{x}] = {v}",
            f"d[1].append({k})",
            f"{a}, *{r} = {m}",
            f"bump({v})",
            f"{x} = bump({w})",
            f"keep({v})",
            f"{a} = kept({x})",
            f"{a} = same({v})",
            f"print({x}, {k})",
            f"print({v})",
            f"o.v = {v}",
            f"o.v.append({x})",
            f"o.n += {x}",
            f"it = iter({v})",
            f"{x} = next(it, 0)",
            f"it = (t + {x} for t in {v})",
            f"{x} = sum(it)",
            f"it = drip({v})",
            f"it = zip({v}, {w})",
            f"{a} = [t for t in {w}]",
            f"{a} = [{x} for {x} in {w}]",
            f"{r} = [t for t in {m}]",
            f"{x} = sum(t for t in {w})",
            f"{x} = sum(len(t) for t in {m})",
            f"h = {v}.append",
            f"h = lambda: {x}",
            f"{x} = {self.number()} // {self.one(NUMBERS)}",
            f"{x} = {v}[9]",
            f"{v}.clear() or {v}.append({x})",
            f"d = {{t: {v} for t in {w}}}",
            f"{a} = {v} = [{x}]",
            f"{x} = d.pop({x}, 0) and 1",
            f"[t.append(1) for t in {m}]",
            f"{a} = [{k}, {x}]",
            f"{a} = [0] * 3",
            f"{a} = list(range(3))",
            f"{x} = {a}.pop()",
            f"{x} = len({a})",
        ]
        if depth < 2 and self.rng.random() < 0.3:
            return self.compound(depth)
        return self.sort("plain", plain)

    def compound(self, depth: int) -> str:
        x, v, w, m = (
            self.one(NUMBERS),
            self.one([*LISTS, *(["p", "q"] if self.outside else [])]),
            self.list(False),
            self.rows(),
        )
        heads = [
            f"if {x} > {self.number()}:",
            f"for {self.one(NUMBERS)} in range(3):",
            f"for {x} in {w}[:3]:",
            f"for {self.one(LISTS)} in {m}[:3]:",
            f"for i, {self.one(LISTS)} in enumerate({m}[:3]):",
            f"for {x}, t in zip({v}[:3], {w}[:3]):",
            f"for k, {self.one(LISTS)} in d.items():",
            f"with noted({v}) as {self.one(LISTS)}:",
            "try:",
            f"def h({self.one(['t=1', 'x=2', f't={v}'])}):",
            "def h():\n    nonlocals",
            f"match {w}:",
            f"for {x} in drip({v}):",
        ]
        head = self.sort("heads", heads)
        body = [self.statement(depth + 1) for _ in range(self.rng.choice([1, 1, 2]))]
        inner = indented(body)
        if head == "try:":
            return f"try:\n{inner}\nexcept (ZeroDivisionError, IndexError) as e:\n    {x} = 1"
        if head.startswith("match"):
            return f"match {w}:\n    case [{x}, *a]:\n{indented(body, 8)}\n    case _:\n        pass"
        if head.startswith("def"):
            name = x if self.rng.random() < 0.5 else self.one(LISTS)
            changed = f"nonlocal {name}\n    {name} = {name} * 2" if self.rng.random() < 0.6 else f"print({name})"
            return (
                f"def h():\n    {changed}\n    {v}.append(2)"
                if self.rng.random() < 0.7
                else f"if h:\n    {x} = h() or 0"
            )
        if head.startswith("for k,"):
            return f"for k, {self.one(LISTS)} in list(d.items()):\n{inner}"
        return f"{head}\n{inner}"
