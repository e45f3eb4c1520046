"""What two programs have printed: do the numbers in it differ, and by more than rounding?

(1) Lines that OpenMP alone prints have no partner: they are left out where nothing else can have printed them.
(2) Lines that threads print are in an order of chance: they are compared as a bag. All others are in order.
(3) A time, or the number of a thread, does not count where `build` knows that it is one.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safepoint.threads.shown import Shown, printers

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d*\.\d+|\d+\.)[-+]\d{3}(?!\d)|(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?|(?:nan|inf(?:inity)?)(?!\w))"
    r"|(?<!\S)[TF](?!\S)",
    re.I,
)  # also with a unit behind it, as 1.5eV; and as Fortran writes 1e-101, and .true.
_WHOLE = re.compile(r"[-+]?\d+")
_ENOUGH = 6  # digits of a number of which the last one may be rounded either way


LONG = 100  # characters of a line that are shown, of one that is more than twice as long
MOST = 100  # lines of a bag that are tried for one without a twin; if there are more, they are sorted first
WORDS, ROUNDING, BEYOND = 0, 1, 2  # how two lines differ


class Row(NamedTuple):
    """A line of an output, with its number."""

    number: int
    text: str


class Text(NamedTuple):
    """An output, sorted out. `only`: by statement, what OpenMP alone decides to print. `bag`: what threads print.
    `shifted`: a line may be of such a statement or of another one, so others may be moved by it."""

    ordered: list[Row]
    bag: list[Row]
    only: dict[str, list[Row]]
    shifted: bool


class Pair(NamedTuple):
    """Two lines that differ. `perhaps`: statements that may have printed them, and other lines in each right run."""

    a: Row | None
    b: Row | None
    how: int
    perhaps: tuple[str, ...] = ()

    def __str__(self) -> str:
        one, other = (row.text if row else "" for row in (self.a, self.b))
        first = next((k for k, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
        at = max(0, first - LONG // 2)
        texts = [f"{name}: {_part(row.text, at) if row else 'nothing'}" for name, row in (("A", self.a), ("B", self.b))]
        return f"line {(self.a or self.b or Row(0, '')).number}, {', '.join(texts)}"


def _part(text: str, at: int) -> str:
    """Of a long line where it differs."""
    if len(text) <= 2 * LONG:
        return text
    return f"{'…' if at else ''}{text[at : at + LONG]}{'…' if at + LONG < len(text) else ''}"


class Compared(NamedTuple):
    """`excused`: why lines that differ do not count, each with the statement that prints them."""

    pairs: list[Pair]
    excused: dict[str, None]


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8", errors="replace").splitlines()


def text(given: Sequence[str], shown: Sequence[Shown], *, unordered: bool = False) -> Text:
    """`unordered`: all lines are in an order of chance, such as those of several ranks."""
    found = Text([], [], {}, any(each.way == "perhaps" for each in shown))
    parallel = unordered or any(each.parallel for each in shown)
    cache: dict[str, list[Shown]] = {}
    for row in itertools.starmap(Row, enumerate(given, 1)):
        if shown and row.text not in cache:
            cache[row.text] = printers(list(shown), row.text)
        by = cache.get(row.text, [])
        if by and all(each.way == "only" for each in by):
            found.only.setdefault(by[0].place, []).append(row)
            continue
        if any(each.way == "only" for each in by):
            found = found._replace(shifted=True)
        (found.bag if parallel and (unordered or any(each.parallel for each in by)) else found.ordered).append(row)
    return found


class Judge(NamedTuple):
    """Which lines differ, with these tolerances and statements."""

    shown: Sequence[Shown]
    rtol: float
    atol: float

    def compared(self, a: Text, b: Text) -> Compared:
        found = Compared([], {})
        for x, y in itertools.zip_longest(a.ordered, b.ordered):
            self._pair(x, y, found)
        self._bags(a.bag, b.bag, found, "the order of what threads print")
        for place in {**a.only, **b.only}:
            one, other = a.only.get(place, []), b.only.get(place, [])
            if one and other:
                self._repeated(one, other, found, place)
            else:
                found.excused[f"lines that only one of them prints, {place}"] = None
        return found

    def _pair(self, x: Row | None, y: Row | None, found: Compared, *, partners: bool = False) -> None:
        """Note how two lines differ, if they do. `partners`: they are known to be of the same statement."""
        if x and y and x.text == y.text:
            return
        excuse, perhaps = self._excuse(x, y, partners)
        if excuse:
            found.excused[excuse] = None
        else:
            how = _apart(x.text if x else None, y.text if y else None, self.rtol, self.atol)
            found.pairs.append(Pair(x, y, how, perhaps))

    def _repeated(self, a: Sequence[Row], b: Sequence[Row], found: Compared, place: str) -> None:
        """Of one statement: each line is like one of the other's, in any order and as often as may be."""
        if [row.text for row in a] == [row.text for row in b]:
            return
        left = [
            [row for row in mine if row.text not in texts and not any(self._near(row, each) for each in theirs[:MOST])]
            for mine, theirs in ((a, b), (b, a))
            for texts in [{each.text for each in theirs}]
        ]
        if not any(left):
            found.excused[f"how often, and in which order, {place} prints"] = None
        for x, y in itertools.zip_longest(*left):
            self._pair(x, y, found, partners=bool(x and y))

    def _bags(self, a: Sequence[Row], b: Sequence[Row], found: Compared, why: str) -> None:
        """Each line of one has a line of the other: the same one, else one that differs by what does not count."""
        if [row.text for row in a] == [row.text for row in b]:
            return
        waiting: dict[str, list[Row]] = {}
        for row in b:
            waiting.setdefault(row.text, []).append(row)
        left = [row for row in a if not (waiting.get(row.text) and waiting[row.text].pop(0))]
        rest = [row for twins in waiting.values() for row in twins]
        found.excused[why] = None
        unmatched = list[Row]()
        if max(len(left), len(rest)) > MOST:
            left, rest = (sorted(rows, key=_by_size) for rows in (left, rest))
            unmatched, left = left, []
        for row in left:
            near = next((each for each in rest if self._near(row, each)), None)
            if near is None:
                unmatched.append(row)
            else:
                rest.remove(near)
                self._pair(row, near, found)
        for x, y in itertools.zip_longest(unmatched, rest):
            self._pair(x, y, found)

    def _near(self, x: Row, y: Row) -> bool:
        return bool(self._excuse(x, y, True)[0]) or _apart(x.text, y.text, self.rtol, self.atol) == ROUNDING

    def _excuse(self, x: Row | None, y: Row | None, partners: bool = False) -> tuple[str, tuple[str, ...]]:
        """Why the difference does not count; else the statements by which it may not."""
        if x is None or y is None:
            row = x or y
            by = [each for each in printers(list(self.shown), row.text) if each.way] if row else []
            return "", tuple(each.place for each in by)
        by = printers(list(self.shown), x.text, y.text)
        special = [each for each in by if each.special]
        if special and len(special) == len(by) and all(self._but_for_unsure(each, x.text, y.text) for each in by):
            return f"times and numbers of threads, {by[0].place}", ()
        found = [each for each in special if each.doubtful or not partners]
        return "", tuple(dict.fromkeys(each.place for each in found))

    def _but_for_unsure(self, shown: Shown, x: str, y: str) -> bool:
        """All values of a statement are the same but for those that are known to differ."""
        one, other = shown.numbers(x), shown.numbers(y)
        if shown.way == "perhaps" or not shown.unsure or shown.text or one is None or other is None:
            return False
        if len(one) != len(shown.values) or len(other) != len(one):
            return shown.values.isupper()
        return all(letter.isupper() or a == b or _apart(a, b, self.rtol, self.atol) < BEYOND
                   for letter, a, b in zip(shown.values, one, other, strict=True))  # fmt: skip


def _by_size(row: Row) -> tuple[str, list[float]]:
    """Lines with the same words stand together, by their numbers."""
    numbers = [float(_plain(each)) for each in _NUMBER.findall(row.text) if _is_number(each)]
    return _NUMBER.sub("", row.text), [0.0 if math.isnan(each) else each for each in numbers]


def chance(pair: Pair, side: str, first: Text, again: Text) -> bool:
    """Whether two runs of this side print other numbers there."""
    row = pair.a if side == "A" else pair.b
    if row is None:
        return len(first.ordered) != len(again.ordered) or len(first.bag) != len(again.bag)
    if (at := _place(row, first)) is not None:
        return at >= len(again.ordered) or again.ordered[at].text != row.text
    every = {each.text for each in (*again.bag, *(line for rows in again.only.values() for line in rows))}
    return row.text not in every


def _place(row: Row, given: Text) -> int | None:
    """Which of the lines in order it is; None: it is none of them."""
    at = bisect.bisect_left(given.ordered, row.number, key=lambda each: each.number)
    return at if at < len(given.ordered) and given.ordered[at].number == row.number else None


def is_count(pair: Pair, threads: int, first: Text, others: int, again: Text) -> bool:
    """Whether all that differs in a line is how many threads there are: of B, `first`, and then with others."""
    at = _place(pair.b, first) if pair.b else None
    if pair.a is None or pair.b is None or at is None or at >= len(again.ordered):
        return False
    one, two, three = (_NUMBER.findall(each) for each in (pair.a.text, pair.b.text, again.ordered[at].text))
    if not len(one) == len(two) == len(three):
        return False
    return all(x == y == z or (x in ("0", "1") and y == str(threads) and z == str(others))
               for x, y, z in zip(one, two, three, strict=True))  # fmt: skip


def is_left(pair: Pair, rtol: float, atol: float) -> bool:
    """Whether numbers of these lines differ by little in size, and perhaps by much of themselves."""
    return bool(pair.a and pair.b and _apart(pair.a.text, pair.b.text, rtol, atol) < BEYOND)


def _apart(x: str | None, y: str | None, rtol: float, atol: float) -> int:
    """In words alone, in numbers, or by more than rounding."""
    one, other = (_NUMBER.findall(text or "") for text in (x, y))
    if one == other:
        return 0
    if len(one) != len(other):
        return 2
    return 1 if all(_close(each, twin, rtol, atol) for each, twin in zip(one, other, strict=True)) else 2


def _close(one: str, other: str, rtol: float, atol: float) -> bool:
    if not (_is_number(one) and _is_number(other)):
        return one == other
    if _WHOLE.fullmatch(one) and _WHOLE.fullmatch(other):  # what is counted is not rounded
        return int(one) == int(other)
    x, y = (float(_plain(text)) for text in (one, other))
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    if not (math.isfinite(x) and math.isfinite(y)):
        return False
    last = max(_last(one), _last(other)) if rtol or atol else 0.0
    return abs(x - y) <= atol + rtol * max(abs(x), abs(y)) + last * 1.001


def _is_number(text: str) -> bool:
    return text.lower() not in ("t", "f")


def _plain(text: str) -> str:
    """As Python reads it: Fortran leaves out the letter before an exponent of three digits."""
    return re.sub(r"(?<=[\d.])([-+]\d{3})$", r"e\1", text.lower().replace("d", "e"))


def _last(text: str) -> float:
    """The size of its last digit; 0 if the number is short, or whole."""
    digits, _, power = _plain(text).lstrip("+-").partition("e")
    whole, point, fraction = digits.partition(".")
    if not point or len((whole + fraction).lstrip("0")) < _ENOUGH:
        return 0.0
    return float(f"1e{int(power or 0) - len(fraction)}")
