"""Random functions of Python, full of aliases: one line of a table is one sort of statement."""

from __future__ import annotations

import random

from testbed.deps_outcomes import indented
from testbed.deps_templates import Templates, sampled, table

# Words of statements that run code which cannot be seen.
WILD = ("bump", "look", "keep", "kept", "same", "o.", "drip", "noted", "h =", "h(", "def", "match", "it =", "next",
        "it)", "*r")  # fmt: skip
NUMBERS, LISTS, ROWS = "xyz", "abc", "rs"
FIRST = table("""
    x = 1 | y = n + 1 | z = 0 | a = [1, 2, 3] | b = [0] * 4 | c = [4, 1] | r = [[0, 1], [7, 8]] | s = [[5], [6, 6]]
    d = {1: [8]} | it = None | h = None
""")
ALIASES = table("x = 1 | y = n + 1 | z = 0 | a = [1, 2, 3] | b = [0] * 4 | c = {one} | r = [{two}, b] | s = {three}")
KNOWN = len(FIRST)  # the first statements, which set each variable
LAST = "return x, y, z, a, b, c, r, s, d, it and list(it)"

# Statements that change one object under several names, and do little else; those that run code which cannot be seen.
SMALL = table("""
    {v}.append({k}) | {v}[0] = {k} | {v}[-1] += {k} | {x} = {v}[0] | {x} = len({v}) | {x} = {k} | {x} = {y} + {k}
    {a} = {v} | {a} = {r}[0] | {r}[0] = {v} | {r}[0].append({k}) | {r} = [{v}, {w}] | {x} = sum({v}) | {v} += [{k}]
    {a} = [{k}, {k}] | {x} = {r}[0][-1] | {s} = {r} | for {x} in {v}[:2]: {w}.append({k}) | {a} = {v} + [{k}]
    d[1] = {v} | d[1].append({k}) | {v}.sort() | {x} = {v}.pop() | {a} = {v}[:]
""")
SMALL_WILD = table("""
    keep({v}) | {a} = kept({k}) | bump({v}) | {x} = 6 // {y} | {x} = {v}[3] | o.v = {v} | GL[0] = {k} | {x} = GL[0]
    {a} = GL | {a} = o.v | print({v}) | print({x}) | {x} = look({v}) | h = {v}.append | h and h({k})
    it = ({k} + t for t in {v}) | {x} = it and sum(it) or 0
""")
NUMBER = table("""
    {i} + {j} | {i} * {j} % 97 | len({u}) | sum({u}) | {u}[{i} % len({u})] | max({u}) | abs({i} - {j}) | (y := {i})
    min({i}, {j}) | look({u}) | {u}[-1] | ({i} if {j} > 2 else {i}) | int({i} in {u}) | math.gcd({i}, {j}) | o.n
""")
LIST = table("""
    {v}[:] | {v}[1:] + [{i}] | [t + {i} for t in {v}] | {v} + {w} | [{i}] * 3 | {m}[{i} % len({m})] | list({v})
    sorted({v}) | same({v}) | kept({i}) | ({v} or {w}) | ({v} if {i} else {w}) | [*{v}, {i}] | list(reversed({v}))
    o.v | d.get({i}, {v}) | {v}.copy() | list({m}[0])
""")
PLAIN = table("""
    {x} = {k} | {x} = {k} | {x} += {k} | {x}, {y} = {k}, {l} | {a} = {deep} | {a} = {deep} | {v} += [{k}] | {a} += {u}
    {v}.append({k}) | {v}[{k} % len({v})] = {l} | {v}[{k} % len({v})] += {x} | {v}.reverse() | {v}.sort()
    {v}.extend({u}[:2]) | {v}[:] = {deep} | {v}[1:1] = [{x}] | {r} = [{v}, {u}] | {r} = {m} | {m}[{k} % len({m})] = {v}
    {m}.append({u}) | {m}[0].append({x}) | {m}[-1][0] += {x} | {r} = list(reversed({m})) | d[{x}] = {v}
    d[1].append({k}) | {a}, *{r} = {m} | bump({v}) | {x} = bump({u}) | keep({v}) | {a} = kept({x}) | {a} = same({v})
    print({x}, {k}) | print({v}) | o.v = {v} | o.v.append({x}) | o.n += {x} | it = iter({v}) | {x} = next(it, 0)
    it = (t + {x} for t in {v}) | {x} = sum(it) | it = drip({v}) | it = zip({v}, {u}) | {a} = [t for t in {u}]
    {a} = [{x} for {x} in {u}] | {r} = [t for t in {m}] | {x} = sum(t for t in {u}) | {x} = sum(len(t) for t in {m})
    h = {v}.append | h = lambda: {x} | {x} = {l} // {y} | {x} = {v}[9] | {v}.clear() or {v}.append({x})
    d = {{t: {v} for t in {u}}} | {a} = {v} = [{x}] | {x} = d.pop({x}, 0) and 1 | [t.append(1) for t in {m}]
    {a} = [{k}, {x}] | {a} = [0] * 3 | {a} = list(range(3)) | {x} = {a}.pop() | {x} = len({a})
""")
HEADS = table("""
    if {x} > {k}: | for {y} in range(3): | for {x} in {u}[:3]: | for {a} in {m}[:3]: | for i, {a} in enumerate({m}[:3]):
    for {x}, t in zip({v}[:3], {u}[:3]): | for k, {a} in list(d.items()): | with noted({v}) as {a}: | try:
    def h(): | def h(): | match {u}: | for {x} in drip({v}):
""")
NAMED = "nonlocal {name}; {name} = {name} * 2", "print({name})"


class Writer:
    """Makes up statements of a few sorts, others for each seed: one call can make an analyser careful everywhere."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.wild = self.rng.choice([0.0, 0.0, 0.1, 0.5])  # the share of sorts that run code which cannot be seen
        self.sorts = self.rng.randrange(4, 30)
        self.chosen: dict[int, list[str]] = {}
        outside = self.rng.random() < 0.5  # whether its parameters are used
        lists = [*LISTS, *(["p", "q"] if outside else [])]
        self.globals = [*lists, *(["GL"] if outside else [])]
        self.fill = Templates(self.rng, {
            "x": NUMBERS, "y": NUMBERS, "a": LISTS, "r": ROWS, "s": ROWS, "v": lists, "w": lists,
            "m": [*ROWS, *(["m"] if outside else [])], "k": self.number, "l": self.number, "u": self.shallow_list,
            "i": self.shallow, "j": self.shallow, "deep": self.list, "one": ["a", "p", "b[:]"],
            "two": ["a", "p", "c"], "three": ["r", "m", "[c, [1]]"], "name": [*NUMBERS, *LISTS],
        })  # fmt: skip

    def program(self, length: int) -> list[str]:
        if self.rng.random() < 0.5:
            names = self.fill.with_({"k": "012"})
            sorts = [*SMALL, *(SMALL_WILD if self.wild else [])]
            first = [*(self.fill(each) for each in ALIASES), *FIRST[len(ALIASES) :]]
            return [*first, *(names(self.rng.choice(sorts)) for _ in range(length)), LAST]
        return [*FIRST, *(self.statement() for _ in range(length)), LAST]

    def sort(self, of: list[str]) -> str:
        """One of the sorts of this program."""
        if id(of) not in self.chosen:
            self.chosen[id(of)] = sampled(self.rng, of, WILD, min(len(of), self.sorts), self.wild)
        return self.fill(self.rng.choice(self.chosen[id(of)]))

    def shallow(self) -> str:
        return self.rng.choice([*NUMBERS, "n", str(self.rng.randrange(5)), "GN"])

    def shallow_list(self) -> str:
        return self.rng.choice(self.globals)

    def number(self) -> str:
        return self.shallow() if self.rng.random() < 0.4 else self.sort(NUMBER)

    def list(self) -> str:
        return self.shallow_list() if self.rng.random() < 0.4 else self.sort(LIST)

    def statement(self, depth: int = 0) -> str:
        if depth < 2 and self.rng.random() < 0.3:
            return self.compound(depth)
        return self.sort(PLAIN)

    def compound(self, depth: int) -> str:
        head = self.sort(HEADS)
        body = [self.statement(depth + 1) for _ in range(self.rng.choice([1, 1, 2]))]
        if head == "try:":
            return self.fill("try:\n{body}\nexcept (ZeroDivisionError, IndexError) as e:\n    {x} = 1", indented(body))
        if head.startswith("match"):
            return self.fill(f"{head}\n    case [{{x}}, *a]:\n{{body}}\n    case _:\n        pass", indented(body, 8))
        if head.startswith("def"):
            changed = NAMED[self.rng.random() < 0.4]
            text = f"def h({self.rng.choice(['', 't=1', 'x=2', 't={v}'])}):\n    {changed}\n    {{v}}.append(2)"
            return self.fill(text if self.rng.random() < 0.7 else "if h:\n    {x} = h() or 0")
        return f"{head}\n{indented(body)}"
