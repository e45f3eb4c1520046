"""What two programs have printed: do the numbers in it differ, and by more than rounding?"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?|nan|inf(?:inity)?)(?![\w])", re.I)
_ENOUGH = 6  # digits of a number of which the last one may be rounded either way


class Printed(NamedTuple):
    """`line`: the first that differs, in words; of those with other numbers, if there are any. `words`: all numbers are
    the same. `beyond`: numbers differ by more than the tolerance."""

    line: str
    words: bool
    beyond: bool


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8", errors="replace").splitlines()


def compared(
    a: Sequence[str], b: Sequence[str], rtol: float, atol: float, again: Sequence[str] | None = None
) -> Printed | None:
    """None: nothing differs. `again`: what A has printed in another run; what differs there does not count here."""
    found: list[tuple[int, str]] = []
    for number, (x, y) in enumerate(itertools.zip_longest(a, b)):
        if x == y or (again is not None and (again[number] if number < len(again) else None) != x):
            continue
        shown = ", ".join(f"{name}: {text if text is not None else 'nothing'}" for name, text in (("A", x), ("B", y)))
        found.append((_apart(x, y, rtol, atol), f"line {number + 1}, {shown}"))
    if not found:
        return None
    worst = max(how for how, _ in found)
    return Printed(next(text for how, text in found if how == worst), worst == 0, worst == 2)


def _apart(x: str | None, y: str | None, rtol: float, atol: float) -> int:
    """0: in words alone, 1: in numbers, 2: by more than rounding."""
    one, other = (_NUMBER.findall(text or "") for text in (x, y))
    if one == other:
        return 0
    if len(one) != len(other):
        return 2
    return 1 if all(_close(each, twin, rtol, atol) for each, twin in zip(one, other, strict=True)) else 2


def _close(one: str, other: str, rtol: float, atol: float) -> bool:
    x, y = (float(text.lower().replace("d", "e")) for text in (one, other))
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    if not (math.isfinite(x) and math.isfinite(y)):
        return False
    last = max(_last(one), _last(other)) if rtol or atol else 0.0
    return abs(x - y) <= atol + rtol * max(abs(x), abs(y)) + last * 1.001


def _last(text: str) -> float:
    """The size of its last digit; 0 if the number is short, or whole."""
    digits, _, power = text.lower().replace("d", "e").lstrip("+-").partition("e")
    whole, point, fraction = digits.partition(".")
    if not point or len((whole + fraction).lstrip("0")) < _ENOUGH:
        return 0.0
    return float(f"1e{int(power or 0) - len(fraction)}")
