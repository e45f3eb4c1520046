"""Random functions of C, full of aliases; a file in which each is run as it is, and with statements in other orders."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

PRELUDE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct pair { unsigned a, b; unsigned v[4]; };
#define SWAP(u, v) do { unsigned swapped = u; u = v; v = swapped; } while (0)
#define EIGHT 8
unsigned g = 3, G[8];
static unsigned *kept_pointer;
unsigned bump(unsigned *v) { v[0] += g; g++; return v[1]; }
unsigned look(const unsigned *v) { return v[0] + g; }
void keep(unsigned *v) { kept_pointer = v; }
unsigned *give(void) { return kept_pointer ? kept_pointer : G; }
unsigned pure(unsigned x) { return 3 * x + 1; }
"""
LOGGED = r"""
#include <stdarg.h>
static char said[1 << 16];
static size_t length;
static int logged(const char *form, ...) {
  va_list all;
  va_start(all, form);
  length += vsnprintf(said + length, sizeof said - length, form, all);
  va_end(all);
  if (length > sizeof said - 100) length = 0;
  return 0;
}
#define printf logged
"""
RUNS = r"""
#undef printf
typedef unsigned function(unsigned *, unsigned *, unsigned *restrict, unsigned);
static unsigned P[24], W[8];
struct seen { unsigned p[24], w[8], g, G[8], result; size_t length; char said[1 << 16]; };
static struct seen first, now;
static void run(function *f, int way, struct seen *to) {
  memset(said, 0, sizeof said); length = 0; kept_pointer = 0; g = 3;
  for (unsigned n = 0; n < 24; n++) P[n] = 5 * n + 1;
  for (unsigned n = 0; n < 8; n++) W[n] = n + 2, G[n] = 9 * n;
  to->result = f(P, way == 0 ? P + 8 : way == 1 ? P : P + 2, W, 2 + way);
  memcpy(to->p, P, sizeof P); memcpy(to->w, W, sizeof W); memcpy(to->G, G, sizeof G);
  to->g = g; to->length = length; memcpy(to->said, said, sizeof said);
}
int main(void) {
  for (int n = 0; orders[n].f; n++) for (int way = 0; way < 3; way++) {
    if (orders[n].first) { for (int w = 0; w < 3; w++) run(orders[n].f, w, &firsts[w]); break; }
    memset(&now, 0, sizeof now); run(orders[n].f, way, &now);
    if (memcmp(&now, &firsts[way], sizeof now)) { printf("%s\n", orders[n].name); break; }
  }
  return 0;
}
"""
FIRST = [
    "unsigned x = 1, y = n, z = 2, i, h = 7",
    "unsigned a[8] = {1, 2, 3}, b[8] = {4, 5}, m[2][4] = {{1}, {2, 3}}",
    "unsigned *r = a, *s = b, *e = b",
    "struct pair t = {1, 2, {3}}, u = {4}",
    "static unsigned count = 2",
    "unsigned *tmp = calloc(8, sizeof *tmp)",
]
LAST = [
    "for (i = 0; i < 8; i++) h = 31 * h + a[i] + 7 * b[i] + 3 * tmp[i] + m[i & 1][i & 3]",
    "return h + 3 * x + 5 * y + 7 * z + 11 * t.a + 13 * t.b + t.v[0] + 3 * t.v[1] + 5 * t.v[2] + u.a + count",
]
WILD = ("bump", "keep", "give", "look", "pure", "printf", "SWAP", "return", "goto")
DECLARES = ("unsigned", "struct")
POINTING = ("r ", "s ", "e ", "*e", "r[", "s[", "&")


class Writer:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pointing = self.rng.random() < 0.6
        self.wild = self.rng.choice([0.0, 0.0, 0.3, 1.0])
        self.chosen: list[int] = []
        self.fresh = 0

    def program(self, length: int) -> list[str]:
        return [*FIRST, *(self.statement() for _ in range(length)), *LAST]

    def one(self, *of: str) -> str:
        return self.rng.choice(of)

    def number(self, deep: bool = True) -> str:
        if deep and self.rng.random() < 0.4:
            return f"{self.number(False)} {self.one('+', '*', '-', '^')} {self.number(False)}"
        return self.one("x", "y", "z", "3", "n", f"a[{self.one('x', 'y', '2')} & 7]", "b[1]", "7")

    def statement(self) -> str:
        templates = self._templates()
        if not self.chosen:
            fits = [n for n, each in enumerate(templates) if self.pointing or not any(p in each for p in POINTING)]
            tame = [n for n in fits if not any(word in templates[n] for word in WILD)]
            wild = [n for n in fits if n not in tame]
            many = self.rng.randrange(4, len(tame))
            self.chosen = self.rng.sample(tame, many) + self.rng.sample(wild, int(len(wild) * self.wild))
        return templates[self.rng.choice(self.chosen)]

    def _templates(self) -> list[str]:
        x, y, a, p = self.one(*"xyz"), self.one(*"xyz"), self.one(*"ab"), self.one(*"pq")
        n, k, r = self.number(), f"({self.number()}) & 7", self.one(*"rs")
        self.fresh += 1
        return [
            f"{x} = {n}",
            f"{x} += {n}",
            f"{x}++",
            f"{x} = {y}",
            f"{a}[{k}] = {n}",
            f"{a}[{k}] += {n}",
            f"{x} = {a}[{k}]",
            f"{p}[{k}] = {n}",
            f"{x} = {p}[{k}]",
            f"*{p} = {n}",
            f"*({p} + ({k})) += {n}",
            f"{x} = *{p} + 1",
            f"{r} = {p}",
            f"{r} = {a}",
            f"{r} = &{a}[{x} & 3]",
            f"{r} = m[1]",
            f"{r} = {p} + ({x} & 3)",
            f"{r} = G",
            f"{r}[{x} & 3] = {n}",
            f"{x} = {r}[{y} & 3]",
            "s = r",
            f"(*{r})++",
            f"e = &{x}",
            f"*e = {n}",
            "*e += 1",
            f"{x} = *e",
            f"e = {p}",
            "e = &t.a",
            f"w[{k}] = {n}",
            f"{x} = w[{k}]",
            f"w[{k}] ^= {x}",
            f"m[{x} & 1][{y} & 3] = {n}",
            f"{x} = m[{y} & 1][{x} & 3]",
            f"t.a = {n}",
            f"t.v[{x} & 3] = {n}",
            "u = t",
            f"{x} = t.b",
            f"{x} = u.v[{y} & 3]",
            f"u.b += {x}",
            f"{x} = bump({a})",
            f"bump({r})",
            f"keep({a})",
            f"{r} = give()",
            f'printf("%u\\n", {x})',
            f'printf("%u %u\\n", {a}[1], {n})',
            f"{x} = pure({y})",
            f"{x} = look({p})",
            f"g += {x}",
            f"{x} = g",
            f"G[{k}] = {n}",
            f"{x} = G[{k}]",
            f"count += {x}",
            f"{x} = count",
            "memcpy(a, b, sizeof a)",
            f"memset({a}, {x} & 255, sizeof {a})",
            f"memcpy({r}, {p}, 3 * sizeof(unsigned))",
            f"for (i = 0; i < 8; i++) {a}[i] += b[i]",
            f"for (i = 0; i < 4; i++) {{ {p}[i] = a[i]; {x} += i; }}",
            f"for (unsigned i = 0; i < 4; i++) {x} += {p}[i]",
            f"if ({x} > {n}) {y} = {n}; else {a}[1] = {n}",
            f"switch ({x} & 3) {{ case 0: {y}++; case 1: z = {n}; break; default: {a}[2]++; }}",
            f"while ({x} & 3) {x}--",
            f"do {{ unsigned x = {'z' if y == 'x' else y}; {a}[x & 7]++; }} while (0)",
            f"{x} = {y} ? z : {a}[{k}]",
            f"{x} = ({y}++, z)",
            f"{y} = sizeof {a} / sizeof *{a} + EIGHT",
            f"unsigned l{self.fresh} = {n}",
            f"SWAP({x}, {y})",
            f"if ({x} == 1234567) return {y}",
            f"tmp[{k}] = {n}",
            f"{x} = tmp[{k}]",
            f"{r} = tmp",
            f"{x} = !tmp",
            f"memcpy(tmp, {a}, sizeof {a})",
            f"e = &{a}[2], *e = {n}",
            f"{{ unsigned *v = {a}; v[{k}] = {n}; }}",
            f"{x} = (unsigned)({y}) & {n}",
            f"{a}[{x}++ & 7] = {y}",
            f"{{ struct pair *o = &t; o->b = {n}; }}",
            f"(&t)->b = {n}",
            f"{{ if (n > 9) goto out{self.fresh}; out{self.fresh}: {x} = 1; }}",
        ]


def function(name: str, body: Sequence[str]) -> str:
    lines = "".join(f"  {each}{'' if each.endswith('}') and not each.startswith(DECLARES) else ';'}\n" for each in body)
    return f"unsigned {name}(unsigned *p, unsigned *q, unsigned *restrict w, unsigned n) {{\n{lines}}}\n"


def differing(directory: Path, orders: Sequence[tuple[str, bool, Sequence[str]]]) -> list[str]:
    """Compile all of these (name, whether it is the one that others are compared with, body), run them, and return the
    names of those that leave anything else behind. A compiler that refuses one is an error."""
    table = "".join(f'  {{"{name}", {int(first)}, {name}}},\n' for name, first, _ in orders)
    rows = f"static struct {{ const char *name; int first; function *f; }} orders[] = {{\n{table}  {{0}}}};\n"
    head, tail = RUNS.split("static struct seen first, now;\n")
    text = PRELUDE + LOGGED + "".join(function(name, body) for name, _, body in orders)
    text += head + "static struct seen firsts[3], now;\n" + rows + tail
    file, program = directory / "orders.c", directory / "orders"
    file.write_text(text, "utf-8")
    done = subprocess.run(
        ["gcc", "-O0", "-w", "-fwrapv", "-o", str(program), str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.returncode
    return ran.stdout.split()
