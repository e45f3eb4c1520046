"""Ten functions. Behind `#:` of each statement of a function: what it depends on, written by hand.

f1 is flow from statement 1 (the first), a1 anti, o1 output; l1: the order alone, as one of them may end the function.
Statements that end with `#: all` depend on each before them.
"""

import math

import numpy as np

TOTAL = 0


def stencil(n, h):
    a = [float(i) for i in range(n)]  #:
    b = [0.0] * n  #:
    for i in range(1, n - 1):  #: f1 f2
        b[i] = h * (a[i - 1] + a[i + 1])
    a[0] = b[1]  #: f1 f2 f3 a3
    c = a[:]  #: f1 f4
    return b, c  #: all


def factors(n):
    rows = [[float(i == j) + 1.0 / (1 + i + j) for j in range(8)] for i in range(8)]  #:
    for k in range(8):  #: f1
        for i in range(k + 1, 8):
            rows[i][k] /= rows[k][k]
    signs = [1.0, -1.0]  #:
    det = math.prod(rows[i][i] for i in range(8))  #: f1 f2
    signs[0] = 2.0  #: f3
    return det, signs  #: all


def butterfly(n):
    re = [math.cos(float(i)) for i in range(16)]  #:
    im = [0.0] * 16  #:
    w = math.cos(math.pi / 8)  #:
    for i in range(8):  #: f1 f2 f3
        t = re[i] - w * im[i]
        re[i] = re[i + 8] + t
    for j in range(8):  #: f2 f3 a4
        im[j] = w * im[j + 8]
    return re, im  #: all


def histogram(xs, bins):
    counts = [0] * 10  #:
    for x in xs:  #: f1
        counts[int(x)] += 1
    most = max(counts)  #: f1 f2
    empty = counts.count(0)  #: f1 f2
    return most, empty  #: all


def words(text):
    line = "the quick brown fox"  #:
    parts = line.split()  #: f1
    upper = [p.upper() for p in parts]  #: f2
    parts.append("end")  #: f2 a3
    short = "-".join(upper)  #: f3
    print(short)  #: f5 l2 l3 l4
    return parts  #: all


def linked(n):
    head = None  #:
    for i in range(5):  #: f1 o1
        head = (i, head)
    total = 0  #:
    node = head  #: f1 f2
    while node:  #: f3 o3 f4 o4
        total += node[0]
        node = node[1]
    return total  #: all


def product(n):
    a = np.ones((n, n))  #:
    b = np.zeros(4)  #:
    view = b[1:]  #: f2
    c = np.dot(a, a)  #: f1
    view[0] = 3.0  #: f3 a3
    s = np.sum(b)  #: f2 f5
    return c, s  #: all


def prefix(n):
    values = list(range(10))  #:
    same = values  #: f1
    running = 0  #:
    for i in range(10):  #: f1 f3 o3
        running += values[i]
        values[i] = running
    last = same[-1]  #: f2 f4
    other = [running]  #: f3 f4
    return last, other  #: all


def push(particles, dt):
    fresh = {"x": 0.0, "v": 1.0}  #:
    fresh["x"] += dt  #: f1
    particles.append(fresh)  #: f1 f2 o2 a2
    for p in particles:  #: l1 f2 o2 a2 f3 a3 o3
        p["x"] += p["v"] * dt
    return particles  #: all


def report(values):
    global TOTAL  #:
    x = math.sqrt(2.0)  #: l1
    TOTAL = x  #: l1 f2
    print(x)  #: l1 f2 l3
    y = x * 2  #: l1 f2 l3 l4
    print(y, values)  #: l1 l2 l3 f5 f4 a4 o4
    return y  #: all
