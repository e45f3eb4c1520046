"""Random functions of C, full of aliases; a file in which each is run as it is, and with statements in other orders."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.deps_templates import Templates, sampled, table

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
POINTING = ("{r}", "r ", "s ", "e ", "*e", "&")
STATEMENTS = table(r"""
    {x} = {n} | {x} += {n} | {x}++ | {x} = {y} | {a}[{k}] = {n} | {a}[{k}] += {n} | {x} = {a}[{k}] | {p}[{k}] = {n}
    {x} = {p}[{k}] | *{p} = {n} | *({p} + ({k})) += {n} | {x} = *{p} + 1 | {r} = {p} | {r} = {a} | {r} = &{a}[{x} & 3]
    {r} = m[1] | {r} = {p} + ({x} & 3) | {r} = G | {r}[{x} & 3] = {n} | {x} = {r}[{y} & 3] | s = r | (*{r})++
    e = &{x} | *e = {n} | *e += 1 | {x} = *e | e = {p} | e = &t.a | w[{k}] = {n} | {x} = w[{k}] | w[{k}] ^= {x}
    m[{x} & 1][{y} & 3] = {n} | {x} = m[{y} & 1][{x} & 3] | t.a = {n} | t.v[{x} & 3] = {n} | u = t | {x} = t.b
    {x} = u.v[{y} & 3] | u.b += {x} | {x} = bump({a}) | bump({r}) | keep({a}) | {r} = give() | printf("%u\n", {x})
    printf("%u %u\n", {a}[1], {n}) | {x} = pure({y}) | {x} = look({p}) | g += {x} | {x} = g | G[{k}] = {n}
    {x} = G[{k}] | count += {x} | {x} = count | memcpy(a, b, sizeof a) | memset({a}, {x} & 255, sizeof {a})
    memcpy({r}, {p}, 3 * sizeof(unsigned)) | for (i = 0; i < 8; i++) {a}[i] += b[i]
    for (i = 0; i < 4; i++) {{ {p}[i] = a[i]; {x} += i; }} | for (unsigned i = 0; i < 4; i++) {x} += {p}[i]
    if ({x} > {n}) {y} = {n}; else {a}[1] = {n} | while ({x} & 3) {x}-- | {x} = {y} ? z : {a}[{k}] | {x} = ({y}++, z)
    switch ({x} & 3) {{ case 0: {y}++; case 1: z = {n}; break; default: {a}[2]++; }}
    do {{ unsigned x = {other}; {a}[x & 7]++; }} while (0) | {y} = sizeof {a} / sizeof *{a} + EIGHT
    unsigned l{fresh} = {n} | SWAP({x}, {y}) | if ({x} == 1234567) return {y} | tmp[{k}] = {n} | {x} = tmp[{k}]
    {r} = tmp | {x} = !tmp | memcpy(tmp, {a}, sizeof {a}) | e = &{a}[2], *e = {n}
    {{ unsigned *v = {a}; v[{k}] = {n}; }} | {x} = (unsigned)({y}) & {n} | {a}[{x}++ & 7] = {y}
    {{ struct pair *o = &t; o->b = {n}; }} | (&t)->b = {n} | {{ if (n > 9) goto out{fresh}; out{fresh}: {x} = 1; }}
""")


class Writer:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        pointing, wild = self.rng.random() < 0.6, self.rng.choice([0.0, 0.0, 0.3, 1.0])
        fits = [each for each in STATEMENTS if pointing or not any(word in each for word in POINTING)]
        self.chosen = sampled(self.rng, fits, WILD, self.rng.randrange(4, len(fits) - len(WILD)), wild)
        numbers = iter(range(10**9))
        self.fill = Templates(self.rng, {
            "x": "xyz", "y": "xyz", "a": "ab", "p": "pq", "r": "rs", "n": self.number, "other": "yz",
            "k": lambda: f"({self.number()}) & 7", "fresh": lambda: str(next(numbers)),
        })  # fmt: skip

    def program(self, length: int) -> list[str]:
        return [*FIRST, *(self.fill(self.rng.choice(self.chosen)) for _ in range(length)), *LAST]

    def number(self, deep: bool = True) -> str:
        if deep and self.rng.random() < 0.4:
            return f"{self.number(False)} {self.rng.choice('+*-^')} {self.number(False)}"
        return self.rng.choice(["x", "y", "z", "3", "n", f"a[{self.rng.choice('xy2')} & 7]", "b[1]", "7"])


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
