"""docs/tasks-deps.md: rules of either language, one by one: what must keep its order, and what need not."""

from __future__ import annotations

import pytest

from safepoint.tasks.deps import Analysis
from safepoint.tasks.deps.python import File

HEAD = "import math\nimport numpy as np\nfrom elsewhere import g, K\n\n"

BOUND_IN_PYTHON = {
    "two parameters may be one list": ("p, q", "p[0] = 1", "x = q[0]"),
    "a second name": ("n", "b[0] = 1", "x = a[0]", "a = [1]; b = a"),
    "a list in a list": ("n", "b[0].append(1)", "x = a[0]", "a = [1]; b = [a]"),
    "what a comprehension copies by reference": (
        "n",
        "b[0].append(1)",
        "x = c[0]",
        "c = [1]; a = [c]; b = [t for t in a]",
    ),
    "a view of an array": ("n", "v[0] = 1.0", "x = a[1]", "a = np.zeros(4); v = a[1:]"),
    "the transpose of an array": ("n", "v[0] = 1.0", "x = a[0, 1]", "a = np.eye(4); v = a.T"),
    "a slice of a parameter may be a view": ("p", "v[0] = 1.0", "x = p[1]", "v = p[1:]"),
    "in-place addition changes the object": ("n", "a += [1]", "x = b[0]", "a = [1]; b = a"),
    "in-place addition may take from an iterator": ("p", "a += p", "x = next(p)", "a = []"),
    "star targets share the elements": ("n", "c[0].append(2)", "x = a[1]", "a = [1, 2]; b = [[], a]; _, *c = b"),
    "a walrus in a comprehension is of the function": ("n", "y = [(x := t) for t in a]", "z = x", "a = [1]; x = 0"),
    "a generator runs later": ("n", "x = 2", "y = sum(g1)", "x = 1; a = [1]; g1 = (t * x for t in a)"),
    "a generator is used up": ("n", "x = next(g1)", "y = list(g1)", "g1 = (t for t in [1, 2])"),
    "an iterator is used up": ("n", "x = list(it)", "y = list(it)", "it = zip([1], [2])"),
    "an iterator reads its list later": ("n", "a.append(1)", "y = list(it)", "a = [1]; it = reversed(a)"),
    "going through a parameter may use it up": ("p", "x = sum(p)", "y = max(p)"),
    "unpacking may use it up": ("p", "x, y = p", "z = sum(p)"),
    "a search may use it up": ("p", "x = 1 in p", "z = 2 in p"),
    "del unbinds": ("n", "del x", "x = 2", "x = 1"),
    "del of an element": ("n", "del b[0]", "x = a[0]", "a = [1]; b = a"),
    "a global that a call may change": ("n", "g()", "x = K"),
    "a global that another statement writes": ("n", "K = n", "g()", "global K"),
    "two calls of unknown functions": ("n", "x = g(1)", "y = g(2)"),
    "a call may keep what it is given": ("n", "g(a)", "a.append(1)", "a = [1]"),
    "what was kept comes back": ("n", "b[0] = 2", "x = a[0]", "a = [1]; g(a); b = g(0)"),
    "a bound method is its object": ("n", "m(1)", "x = a[0]", "a = [1]; m = a.append"),
    "attributes": ("p, q", "p.x = 1", "y = q.x"),
    "reading an attribute may run a property": ("p, q", "y = p.x", "z = q.x"),
    "two prints": ("n", "print(1)", "print(2)"),
    "a print and an unknown call": ("n", "print(1)", "g()"),
    "a closure that reads": ("n", "x = 2", "y = h()", "x = 1; h = lambda: x"),
    "a nested function that writes": ("n", "y = x", "h()", "x = 1\n    def h():\n        nonlocal x\n        x = 2"),
    "a nested function that changes a list": ("n", "y = a[0]", "h()", "a = [1]\n    def h():\n        a[0] = 2"),
    "a decorator": ("n", "a[0] = 2", "@g(a)\n    def h(): pass", "a = [1]"),
    "a default is taken when it is defined": ("n", "x = 2", "def h(y=x): pass", "x = 1"),
    "with runs code": ("n", "a[0] = 2", "with g(a) as b: pass", "a = [1]"),
    "try writes what it may not reach": ("n", "try: x = g()\n    except ValueError: y = 1", "y = 2"),
    "the name of an exception is unbound": ("n", "try: g()\n    except ValueError as e: pass", "e = 1"),
    "match binds": ("n", "x = 1", "match a:\n        case [x, *_]: pass", "a = [1]"),
    "match hands out elements": (
        "n",
        "b.append(1)",
        "x = c[0]",
        "c = [1]; a = [c, 1]\n    match a:\n        case [b, _]: pass",
    ),
    "eval": ("n", "x = 2", "y = eval('x')", "x = 1"),
    "locals": ("n", "x = 2", "y = locals()", "x = 1"),
    "globals gives the variables of the module": ("n", "d['K'] = 2", "x = K", "d = globals()"),
    "exec with another name": ("n", "x = 2", "e('y = x')", "x = 1; e = exec"),
    "what raises, and a change of a parameter": ("p", "x = 1 // n", "p[0] = 1", "n = 0"),
    "what raises, and a print": ("n", "print(1)", "x = 1 // n"),
    "a loop that may not end, and a print": ("n", "while n: pass", "print(1)"),
    "an assertion": ("n", "assert n > 0", "x = 1"),
    "a raise in an if": ("n", "if n < 0: raise ValueError", "x = 1 / n"),
    "return in a loop": ("n", "for i in range(3):\n        if i == n: return i", "x = 1"),
    "yield": ("n", "yield n", "x = 1"),
    "an import runs the module": ("n", "import elsewhere", "g()"),
    "a loop's variable is left over": ("n", "for i in range(3): pass", "x = i"),
    "sorting with a key runs it": ("n", "x = sorted([1], key=g)", "print(1)"),
    "dict views see later changes": ("n", "d[2] = 3", "x = list(k)", "d = {1: 2}; k = d.items()"),
    "an element of a dict": ("n", "d[1].append(1)", "x = a[0]", "a = [1]; d = {1: a}"),
    "setdefault returns what is there": ("n", "b.append(1)", "x = a[0]", "a = [1]; d = {}; b = d.setdefault(1, a)"),
    "an argument out= of numpy": ("n", "np.sqrt(a, out=b)", "x = b[0]", "a = np.ones(3); b = np.zeros(3)"),
    "an array of objects holds them": (
        "n",
        "b[0].append(1)",
        "x = a[0]",
        "a = [1]; b = np.array([a, None], dtype=object)",
    ),
    "sum of lists shares the elements": ("n", "b[0].append(1)", "x = a[0]", "a = [1]; b = sum([[a]], [])"),
    "multiplying a list shares the elements": ("n", "b[1].append(1)", "x = b[0][0]", "b = [[]] * 2"),
    "or gives an operand": ("n", "b.append(1)", "x = a[0]", "a = [1]; b = a or []"),
    "a conditional gives an operand": ("n", "b.append(1)", "x = a[0]", "a = [1]; b = a if n else []"),
    "max gives an element": ("n", "b.append(1)", "x = a[0]", "a = [1]; b = max(a, [0])"),
    "chained assignment": ("n", "b.append(1)", "x = a[0]", "a = b = []"),
    "a class takes what it names": ("n", "a.append(1)", "x = c.v", "a = [1]\n    class c:\n        v = a"),
}
FREE_IN_PYTHON = {
    "two numbers": ("n", "x = n + 1", "y = n + 2"),
    "two lists of one's own": ("n", "a.append(1)", "b.append(2)", "a = []; b = []"),
    "a copy": ("n", "a.append(1)", "b[0] = 2", "a = [1]; b = a[:]"),
    "the variable of two loops": (
        "n",
        "for i in range(3): a[i] = i",
        "for i in range(3): b[i] = i",
        "a = [0] * 3; b = [0] * 3",
    ),
    "sums of parameters": ("p", "x = p[0] + p[1]", "y = p[2] * 2"),
    "functions of math": ("n", "x = math.sin(n)", "y = math.cos(n)"),
    "arrays of one's own": ("n", "a[0] = 1.0", "b += a2", "a = np.zeros(3); b = np.ones(3); a2 = np.ones(3)"),
    "a comprehension's variable is its own": ("n", "x = 1", "a = [x for x in range(3)]"),
    "elements of a list of numbers": ("n", "x += 1", "a[0] = 2", "a = [1]; x = a[0]"),
    "a print and a number": ("n", "print(1)", "x = 1"),
    "strings": ("n", "x = 'a'.upper()", "y = 'b'.split()"),
}

BOUND_IN_C = {
    "two pointers": ("double *p, double *q", "p[0] = 1", "double x = q[0]"),
    "an array and a pointer to it": ("int n", "a[0] = 1", "n = *p", "int a[3], *p = a;"),
    "restrict that was copied": ("int *restrict p, int n", "p[0] = 1", "n = *q", "int *q; q = p;"),
    "malloc that was copied": ("int n", "p[0] = 1", "n = *q", "int *p = malloc(9), *q = p;"),
    "a variable whose address is taken": ("int n", "n = 1", "*p = 2", "int *p = &n;"),
    "the address of an element": ("int n", "a[2] = 1", "*p = 2", "int a[3], *p = &a[1];"),
    "a row of an array": ("int n", "m[1][0] = 1", "*p = 2", "int m[2][2], *p = m[1];"),
    "an array in a struct": ("int n", "s.v[0] = 1", "*p = 2", "struct t s; int *p = s.v;"),
    "two fields of one struct": ("int n", "s.a = 1", "u = s", "struct t s, u;"),
    "a typedef may be an array": ("int n", "v[0] = 1", "call(v)", "vec v;"),
    "a global and a call": ("int n", "count = 1", "call(n)"),
    "a static variable and a call": ("int n", "c = 1", "call(n)", "static int c;"),
    "a header's global": ("int n", "n = optind", "call(n)"),
    "two calls": ("int n", "call(1)", "call(2)"),
    "a call by a pointer": ("int n, int (*f)(int)", "f(1)", "call(2)"),
    "a declaration and its use": ("int n", "int x", "x = 1"),
    "a declaration that hides a global": ("int n", "n = count", "int count = 2"),
    "sizeof needs the declaration": ("int n", "int x[3]", "n = sizeof x"),
    "sizeof of a product": ("int n", "n = 2", "k = sizeof (a) * n", "int a[3], k;"),
    "what looks like a cast": ("int n, int k", "k = 2", "n = (k) & n"),
    "what looks like a cast, its operand": ("int n, int k", "k = 2", "n = (n) & k"),
    "++": ("int n, int k", "n++", "k = n"),
    "an operand of a comma": ("int n, int k", "k = (n++, 2)", "n = 1"),
    "both arms of a conditional": ("int n, int k", "k = n ? k : j", "j = 1", "int j;"),
    "a macro in capitals": ("int n, int k", "SWAP(n, k)", "k = 1"),
    "a macro of the file": ("int n, int k", "swap(n, k)", "j = 1", "int j;"),
    "a constant that names a variable": ("int n, int k", "n = 1", "k = twice_n"),
    "printf": ("int n", 'printf("1")', 'printf("2")'),
    "%n writes": ("int n", 'printf("1%n", &n)', "n = 2"),
    "asm": ("int n", 'asm("nop")', "n = 2"),
    "volatile": ("int n", "v = 1", "w = 2", "volatile int v, w;"),
    "a pointer to volatile": ("volatile int *p, int n", "*p = 1", 'printf("2")'),
    "goto": ("int n", "if (n) goto end", "n = 2"),
    "return in a loop": ("int n", "for (;;) return", "n = 2"),
    "a pragma": ("int n", "\n#pragma omp parallel\n", "n = 2"),
    "setjmp": ("int n", "setjmp(b)", "n = 2", "jmp_buf b;"),
    "a call, where there is setjmp": ("int n", "call(1)", "n = 2", "jmp_buf b; if (setjmp(b)) n = 3;"),
    "a loop without end, and what others see": ("int *p", "for (;;)", "*p = 2"),
    "errno, and a function that may set it": ("int n", "x = sqrt(x)", "n = errno", "double x = 2;"),
    "memcpy": ("int n", "memcpy(a, b, 4)", "n = a[0]", "int a[3], b[3];"),
    "a variable without braces in an inner block": ("int n, int k", "{ int k = 1; n = k; }", "k = n"),
    "i[a]": ("int n", "2[a] = n", "n = a[2]", "int a[3];"),
    "a string literal's alias": ("char *p, char *q", 'strcpy(p, "x")', "*q = 0"),
    "an assignment in a condition": ("int n, int k", "if ((n = k)) k = 1", "n = 2"),
    "switch with fall through": ("int n, int k", "switch (k) { case 1: n++; default: ; }", "n = 2"),
    "a compound literal's address": ("int n", "n = 2", "call(&(struct t){n})"),
}
FREE_IN_C = {
    "two variables": ("int n, int k", "n = 1", "k = 2"),
    "two arrays": ("int n", "a[0] = 1", "b[0] = 2", "int a[3], b[3];"),
    "restrict": ("int *restrict p, int *restrict q", "p[0] = 1", "q[0] = 2"),
    "malloc": ("int n", "p[0] = 1", "q[0] = 2", "int *p = malloc(9), *q = malloc(9);"),
    "a variable and a call": ("int n, int k", "n = 1", "call(k)"),
    "the counter of two loops": (
        "int n",
        "for (i = 0; i < 3; i++) a[i] = 1",
        "for (i = 0; i < 3; i++) b[i] = 1",
        "int i, a[3], b[3];",
    ),
    "reads by two pointers": ("int *p, int *q, int n, int k", "n = *p", "k = *q"),
    "sizeof does not read": ("int n, int k", "n = 1", "k = sizeof n"),
    "a variable of an inner block": ("int n, int k", "{ int k = 1; n = k; }", "k = 2"),
    "memset of an array, and another": ("int n", "memset(a, 0, sizeof a)", "b[0] = 1", "int a[3], b[3];"),
    "functions of math": ("double x, double y", "x = sin(x)", "y = cos(y)"),
    "a field of a struct, and a scalar": ("int n", "s.a = 1", "n = 2", "struct t s;"),
}
C_HEAD = """
#include <stdio.h>
struct t { int a, v[3]; };
#define swap(a, b) (j = a, a = b, b = j)
#define twice_n (n + n)
int count;
"""


def in_python(parameters: str, first: str, second: str, before: str = "") -> Analysis:
    setup = f"    {before}\n" if before else ""
    return File("f.py", f"{HEAD}def f({parameters}):\n{setup}    {first}\n    {second}\n").analysis("f")


def in_c(parameters: str, first: str, second: str, before: str = "") -> Analysis:
    pytest.importorskip("tree_sitter_c", reason="no tree-sitter-c: pip install '.[deps]'")
    from safepoint.tasks.deps.c import File

    lines = "".join(each + ("\n" if each[-1] in "}\n" else ";\n") for each in (first, second))
    return File("f.c", f"{C_HEAD}void f({parameters}) {{ {before} {lines} end: ; }}").analysis("f")


def independent(found: Analysis, last: int) -> bool:
    """The two statements before the last `last`."""
    at = len(found.statements) - last - 2
    return found.independent(at, at + 1)


@pytest.mark.parametrize("case", [*BOUND_IN_PYTHON, *FREE_IN_PYTHON])
def test_python_keeps_the_order_or_may_exchange(case: str) -> None:
    found = in_python(*(BOUND_IN_PYTHON | FREE_IN_PYTHON)[case])
    assert independent(found, 0) is (case in FREE_IN_PYTHON)


@pytest.mark.parametrize("case", [*BOUND_IN_C, *FREE_IN_C])
def test_c_keeps_the_order_or_may_exchange(case: str) -> None:
    assert independent(in_c(*(BOUND_IN_C | FREE_IN_C)[case]), 1) is (case in FREE_IN_C)


OPERATORS = """
class Money:
    def __add__(self, other):
        print(other)
        return self

def f(p, q):
    x = p + 1
    y = q + 2
"""
FINAL = """
class File:
    def __del__(self):
        print("gone")

def f(p, q):
    x = 1
    print(2)
"""
DEFAULT = """
from collections import defaultdict

def f(p):
    x = p[1]
    y = p[2]
"""
SHADOWED = """
def len(v):
    v.append(1)

def f(n):
    a = [1]
    x = len(a)
    y = a[0]
"""


@pytest.mark.parametrize("source", [OPERATORS, FINAL, DEFAULT, SHADOWED])
def test_a_file_that_gives_operators_or_builtins_a_meaning_of_its_own_is_believed(source: str) -> None:
    assert not independent(File("f.py", source).analysis("f"), 0)


def test_within_try_and_with_all_that_is_written_is_seen_after_an_exception() -> None:
    source = "def f(n):\n    x = 0\n    try:\n        y = 1 // n\n        x = 1\n    except ValueError:\n        pass\n"
    file = File("f.py", source)
    assert not independent(file.analysis("f", 3), 0)
    plain = "def f(n):\n    for i in range(3):\n        y = 1 // n\n        x = 1\n"
    assert independent(File("f.py", plain).analysis("f", 2), 0)
