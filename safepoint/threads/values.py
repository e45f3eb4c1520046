"""When are two recorded values the same?

NaN is equal to NaN of any payload, -0 to 0, an infinity only to itself; else bit by bit, or within the tolerance of its
name. The order in ATOMIC or CRITICAL, and the rounding of a reduction, are chance: such sites are loose. All reals that
a program with such sums makes are allowed the same rounding, as nobody can follow it through each name.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safepoint.threads import kinds
from safepoint.threads.canon import Ints, Words, kinds_of
from safepoint.threads.sites import Sites
from safepoint.threads.trace import decoded

Flags = NDArray[np.bool_]

REDUCTION_RTOL = 1e-12
SINGLE = 1e7  # as much nearer sums of doubles are than those of single precision, which have other 84 last bits then
MOST_WORDS = 8  # of an event that has a value: a digest with statistics
_LOOSE = {"": 0, "reduction": 1, "critical": 2, "atomic": 3, "reduced": 4}
_STRUCTURAL = (kinds.LOOP, kinds.SECTIONS, kinds.ITER)  # their values are what is to be done
_VALUED, _OF_STRUCTURE = np.zeros(256, bool), np.zeros(256, bool)
_VALUED[[kinds.WRITE, kinds.READ, kinds.DIGEST]] = True
_OF_STRUCTURE[list(_STRUCTURAL)] = True


@dataclass(frozen=True)
class Rules:
    """What counts as the same. `tolerances`: name (a glob), relative and absolute; the last that fits decides.
    `rounding`: in a program with sums, also arrays whose statistics are as near as sums are."""

    rtol: float = 0.0
    atol: float = 0.0
    tolerances: tuple[tuple[str, float, float], ...] = ()
    exclude: tuple[str, ...] = ()
    reduction_rtol: float = REDUCTION_RTOL
    rounding: bool = False

    def excluded(self, name: str) -> bool:
        return any(fits(name, pattern) for pattern in self.exclude)

    def of_sums(self, type: int) -> float:
        """How near sums of threads are: as many last bits of single precision as of double."""
        return self.reduction_rtol * (SINGLE if type in (kinds.REAL4, kinds.COMPLEX4) else 1)

    def tolerance(self, name: str) -> tuple[float, float]:
        fitting = [(r, a) for pattern, r, a in self.tolerances if fits(name, pattern)]
        return fitting[-1] if fitting else (self.rtol, self.atol)


def fits(name: str, pattern: str) -> bool:
    """A pattern is of a variable (`b`), or of a place in it as the source has it (`b(i,j)`; in C `b[i]`)."""
    return fnmatch.fnmatchcase(name.partition("(")[0].partition("[")[0], pattern) or fnmatch.fnmatchcase(name, pattern)


class Judge:
    """Which of two lines of records differ first. Counts what was tolerated."""

    def __init__(self, sites: Sites, rules: Rules) -> None:
        self.rules = rules
        size = max(sites.by_number, default=0) + 2
        self.loose, self.excluded = np.zeros(size, np.int8), np.zeros(size, bool)
        self.rtol, self.atol = np.full(size, rules.rtol), np.full(size, rules.atol)
        for number, site in sites.by_number.items():
            self.loose[number] = _LOOSE.get(site.loose, 0)
            self.excluded[number] = rules.excluded(site.name)
            self.rtol[number], self.atol[number] = rules.tolerance(site.name)
        self.of_sums = np.array([rules.of_sums(type) for type in range(256)])
        self.sums = bool(np.isin(self.loose, (1, 4)).any())
        self.carried = 0  # other values that differ as a sum of threads may
        self.carried_inside = self.carried_arrays = 0  # of these, writes in regions, and digests
        self.single = False  # of these, or of reductions, one of single precision
        names = {site.name for site in sites.by_number.values()}
        patterns = [*((f"--exclude {each}", each) for each in rules.exclude),
                    *((f"--tolerance {each[0]}", each[0]) for each in rules.tolerances)]  # fmt: skip
        self.idle = [text for text, each in patterns if not any(fits(name, each) for name in names)]
        self.reductions = 0  # that differ in bits, and are the same within the tolerance of reductions
        self.tolerated = 0  # other values whose bits differ
        self.by_statistics = 0  # of these, digests of arrays
        self.unknown: set[int] = set()  # sites of reductions whose digests differ, and have no statistics

    def first(self, a: Words, b: Words, limit: int, state: State) -> tuple[int, str, int]:
        """Number of the first record that differs before `limit`, and how: "structure" or "value"; -1 if none. And the
        last one before it that was tolerated, or -1. Records from `limit` on complete the events before it."""
        heads = a[:, 0] != b[:, 0]
        at = np.flatnonzero(heads | (a[:, 1] != b[:, 1]))
        if not len(at):
            return -1, "", -1
        structural = np.flatnonzero(heads)
        structural = structural[self._structural(a[structural, 0], b[structural, 0])]
        stop = min(int(structural[0]) if len(structural) else limit, limit)
        of = _heads(a, at)
        of = of[of < stop]
        same, tolerated = self._same(a, b, of, state)
        wrong = of[~same]
        end = int(wrong[0]) if len(wrong) else stop
        last = of[tolerated & (of < end)]
        tail = int(last[-1]) if len(last) else -1
        if len(wrong):
            kind = int(a[end, 0] >> 56)
            return end, "structure" if kind in _STRUCTURAL else "value", tail
        return (stop, "structure", tail) if stop < limit else (-1, "", tail)

    @staticmethod
    def _structural(a: Words, b: Words) -> Flags:
        """Whether site, kind or type differ. `extra` of ENTER is the thread, which is nobody's fault."""
        apart = a ^ b
        kind = a >> 56
        counted = (kind == kinds.LOOP) | (kind == kinds.ITER) | (kind == kinds.DIGEST)
        found: Flags = np.where(counted, apart, apart & 0xFFFF0000FFFFFFFF) != 0
        return found

    def _same(self, a: Words, b: Words, of: Ints, state: State) -> tuple[Flags, Flags]:
        """Of events whose bits differ: whether they are the same all the same, up to the first that is not; and
        whether within a tolerance."""
        head = a[of, 0]
        site, kind, type = (head & 0xFFFFFFFF).astype(np.int64), head >> 56, (head >> 48 & 0xFF).astype(np.int64)
        site, valued = np.minimum(site, len(self.loose) - 1), _VALUED[kind]
        loose = self.loose[site]
        inside = state.inside(of) if self.sums else np.ones(len(of), bool)
        reduced, sums = valued & ((loose == 4) | ((loose == 1) & ~inside)), self.of_sums[type]
        real, digest = (type >= kinds.REAL4) & (type <= kinds.COMPLEX16), kind == kinds.DIGEST
        carried = ~reduced & ~digest & real & (self.rtol[site] < sums) & self.sums
        free = self.excluded[site] | (loose == 2) | (loose == 3) | ((loose == 1) & inside) | state.atomic(of)
        same = np.where(valued, free, ~_OF_STRUCTURE[kind])
        rtol = np.where(reduced | carried, np.maximum(self.rtol[site], sums), self.rtol[site])
        ask, tolerated = valued & ~same, np.zeros(len(of), bool)
        for of_type in np.flatnonzero(np.bincount(type[ask], minlength=1)).tolist():
            which = np.flatnonzero(ask & (type == of_type) & ~digest)
            count = _words_of(of_type)
            x, y = event_words(a, of[which], count), event_words(b, of[which], count)
            atol = self.atol[site[which]]
            if carried[which].any():
                atol += np.where(carried[which], left(of_type, x, site[which], rtol[which]), 0)
            same[which] = tolerated[which] = alike(of_type, x, y, rtol[which], atol)
        known = same | (ask & digest)
        end = len(of) if known.all() else int(np.argmin(known))
        for number in np.flatnonzero(ask[:end] & digest[:end]).tolist():
            x, y = (each[of[number] : of[number] + 8] for each in (a, b))
            same[number] = self._digest(x, y, float(rtol[number]), bool(reduced[number]), bool(real[number]))
            if not same[number]:
                end = number
                break
        tolerated[end:] = False
        self._count(reduced & tolerated, carried & tolerated, tolerated, type)
        self.carried_inside += int(np.count_nonzero(carried & tolerated & inside & (kind == kinds.WRITE)))
        return same, tolerated & ~reduced

    def _count(self, reduced: Flags, carried: Flags, tolerated: Flags, type: Ints) -> None:
        self.reductions += int(np.count_nonzero(reduced))
        self.carried += int(np.count_nonzero(carried))
        self.tolerated += int(np.count_nonzero(tolerated & ~reduced & ~carried))
        self.single |= bool(((reduced | carried) & _is_single(type)).any())

    def _digest(self, a: Words, b: Words, rtol: float, reduced: bool, real: bool) -> bool:
        site, type = int(a[0, 0]) & 0xFFFFFFFF, int(a[0, 0]) >> 48 & 0xFF
        if a[0, 1] != b[0, 1]:
            return False
        statistics = kinds.more(kinds.DIGEST, type, int(a[0, 0]) >> 32 & 0xFFFF, 0) - 2
        if not statistics:
            if reduced:
                self.unknown.add(site)
            return reduced
        x, y = (np.ascontiguousarray(each[3 : 3 + statistics, 1]).view(np.float64) for each in (a, b))
        sums = self.rules.of_sums(type) if real and self.sums and self.rules.rounding else 0.0
        if reduced or sums > rtol:
            near = statistics_near(x, y, max(rtol, sums))
            self.reductions += near and reduced
            self.carried += near and not reduced
            self.carried_arrays += near and not reduced and int(a[0, 1]) > 1
            self.single |= near and type in (kinds.REAL4, kinds.COMPLEX4)
            return near
        atol = float(self.atol[min(site, len(self.atol) - 1)])
        if not (rtol or atol):
            return int(a[0, 1]) == 1 and type in (kinds.REAL4, kinds.REAL8) and bool(_equal(x, y).all())
        root = rtol * max(abs(x[3]), abs(y[3]))  # what makes a mean may cancel
        wide = np.array([0, 0, root, 0, root])[: len(x)]
        near = type in _NUMBERS and bool(_close(x, y, np.full(len(x), rtol), atol + wide).all())
        self.tolerated += near
        self.by_statistics += near and int(a[0, 1]) > 1
        return near


class State:
    """What surrounds the records of a chunk: whether they are in a region's block, and in ATOMIC.

    `before`: some records that come before the chunk, so that it is known whether it begins in ATOMIC.
    """

    def __init__(self, before: Words, records: Words, sequential: Callable[[Ints], NDArray[np.bool_]]) -> None:
        self._sequential = sequential
        self._levels: Ints | None = None
        kind = np.concatenate([kinds_of(before), kinds_of(records)])
        if not ((kind == kinds.ATOMIC) | (kind == kinds.ATOMIC_END)).any():
            return
        steps = np.where(kind == kinds.ATOMIC, 1, np.where(kind == kinds.ATOMIC_END, -1, 0))
        levels = np.cumsum(steps)
        levels -= min(0, int(levels[: len(before)].min(initial=0)))  # it began in one
        self._levels = levels[len(before) :]

    def atomic(self, of: Ints) -> Flags:
        return np.zeros(len(of), bool) if self._levels is None else self._levels[of] > 0

    def inside(self, of: Ints) -> Flags:
        return ~self._sequential(of)


_REALS = {kinds.REAL4, kinds.REAL8, kinds.REAL16}
_COMPLEX = {kinds.COMPLEX4, kinds.COMPLEX8, kinds.COMPLEX16}
_INTEGERS = {kinds.INTEGER1: "<i1", kinds.INTEGER2: "<i2", kinds.INTEGER4: "<i4", kinds.INTEGER8: "<i8"}
_NUMBERS = _REALS | _COMPLEX | set(_INTEGERS)


def _heads(records: Words, of: Ints) -> Ints:
    """The first records of the events to which these belong; without what belongs to one before all."""
    more = records[of, 0] >> 56 == kinds.MORE
    if not more.any():
        return of
    heads, rest = [of[~more]], of[more]
    while len(rest := rest[rest > 0] - 1):
        more = records[rest, 0] >> 56 == kinds.MORE
        heads.append(rest[~more])
        rest = rest[more]
    return np.unique(np.concatenate(heads))


def _words_of(type: int) -> int:
    """How many words a value may have."""
    return MOST_WORDS if type == kinds.CHARACTER else max(1, kinds.SIZES.get(type, 8 * MOST_WORDS) // 8)


def event_words(records: Words, of: Ints, most: int = MOST_WORDS) -> Words:
    """The words of events: a row for each; 0 where an event has fewer."""
    found = np.zeros((len(of), most), np.uint64)
    found[:, 0] = records[of, 1]
    mine = np.ones(len(of), bool)
    for number in range(1, most):
        at = np.minimum(of + number, len(records) - 1)
        mine &= (of + number < len(records)) & (records[at, 0] >> 56 == kinds.MORE)
        if not mine.any():
            break
        found[mine, number] = records[at[mine], 1]
    return found


def parts(type: int, words: Words) -> NDArray[np.float64] | None:
    """Numbers as doubles, a complex one as two; None if they are no numbers."""
    if type == kinds.REAL8:
        return words[:, :1].view(np.float64)
    if type == kinds.REAL4:
        return words[:, :1].astype(np.uint32).view(np.float32).astype(np.float64)
    if type == kinds.COMPLEX8:
        return np.ascontiguousarray(words[:, :2]).view(np.float64)
    if type == kinds.COMPLEX4:
        return np.ascontiguousarray(words[:, :1]).view(np.float32).astype(np.float64)
    if type in _INTEGERS:
        width = int(_INTEGERS[type][2])
        plain = np.ascontiguousarray(words[:, :1]).view(_INTEGERS[type])[:, : 8 // width]
        return plain[:, :1].astype(np.float64)
    if type in (kinds.REAL16, kinds.COMPLEX16):
        values = [complex(decoded(type, row)) for row in words[:, :4].tolist()]
        return np.array([(value.real, value.imag) for value in values], np.float64).reshape(-1, 2)
    return None


def left(type: int, words: Words, sites: Ints, rtol: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much may be rounded of what is left where two values cancel: as much as of the largest at the same site, but
    no more than the root of `rtol` of itself."""
    with np.errstate(invalid="ignore"):
        numbers = parts(type, words)
    if numbers is None:
        return np.zeros(len(words))
    size = np.abs(numbers).max(axis=1)
    size = np.where(np.isfinite(size), size, 0)
    largest = np.zeros(int(sites.max(initial=0)) + 1)
    np.maximum.at(largest, sites, size)
    found: NDArray[np.float64] = np.minimum(rtol * largest[sites], np.sqrt(rtol) * size)
    return found


def alike(type: int, a: Words, b: Words, rtol: NDArray[np.float64], atol: NDArray[np.float64]) -> Flags:
    bits: NDArray[np.bool_] = (a == b).all(axis=1)
    if kinds.LOGICAL1 <= type <= kinds.LOGICAL8:  # compilers differ in what is true
        found: Flags = (a[:, 0] != 0) == (b[:, 0] != 0)
        return found
    with np.errstate(invalid="ignore"):  # a signalling NaN
        x, y = parts(type, a), parts(type, b)
    if x is None or y is None:
        return bits
    tolerant = (rtol > 0) | (atol > 0)
    exact = np.zeros(len(a), bool)
    if type not in _INTEGERS:
        exact = np.asarray(_equal(x, y).all(axis=1))
        if type in (kinds.REAL16, kinds.COMPLEX16):  # the doubles next to them are not they
            exact &= bits | np.isnan(x).any(axis=1) | (x == 0).all(axis=1)
    if x.shape[1] == 2:
        close = _close_complex(x, y, rtol, atol)
    else:
        close = _close(x[:, 0], y[:, 0], rtol, atol)
    return bits | exact | (tolerant & close)


def _is_single(type: Ints) -> Flags:
    found: Flags = (type == kinds.REAL4) | (type == kinds.COMPLEX4)
    return found


def statistics_near(x: NDArray[np.float64], y: NDArray[np.float64], rtol: float) -> bool:
    """Whether least, greatest, mean and root of squares may be of one array, but for rounding. What makes a mean may
    cancel, and so may what makes the least or greatest value (`left`)."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(x), np.abs(y))
        ends = np.minimum(rtol * size[:2].max(), np.sqrt(rtol) * size[:2])
        atol = np.array([*ends, rtol * size[3], 0, rtol * size[3]])[: len(x)]
    return bool(_close(x, y, np.full(len(x), rtol), np.where(np.isfinite(atol), atol, 0)).all())


def _equal(x: NDArray[np.float64], y: NDArray[np.float64]) -> Flags:
    found: Flags = (x == y) | (np.isnan(x) & np.isnan(y))
    return found


def _close(
    x: NDArray[np.float64], y: NDArray[np.float64], rtol: NDArray[np.float64], atol: NDArray[np.float64]
) -> Flags:
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(x - y) <= atol + rtol * np.maximum(np.abs(x), np.abs(y))
    return _equal(x, y) | (near & np.isfinite(x) & np.isfinite(y))


def _close_complex(
    x: NDArray[np.float64], y: NDArray[np.float64], rtol: NDArray[np.float64], atol: NDArray[np.float64]
) -> Flags:
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.hypot(x[:, 0], x[:, 1]), np.hypot(y[:, 0], y[:, 1]))
        near = np.hypot(x[:, 0] - y[:, 0], x[:, 1] - y[:, 1]) <= atol + rtol * size
    return _equal(x, y).all(axis=1) | (near & np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1))
