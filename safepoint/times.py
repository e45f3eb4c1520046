"""Times as people write them in settings and options, and as messages show them."""

from __future__ import annotations

import math
import re

_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d\d):(\d\d)")
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}


def duration(text: str) -> float:
    """Seconds, more than 0: `90 s`, `15min`, `1h 30min`, `2:30:00`, or with days `1-12:00:00`. Raises `ValueError`."""
    clock = _CLOCK.fullmatch(text.strip())
    if clock:
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        seconds = float(days * 86400 + hours * 3600 + minutes * 60 + rest)
    else:
        pieces = _PIECE.findall(text.strip())
        if _PIECE.sub("", text.strip()) or any(unit not in _UNITS for _, unit in pieces):
            pieces = []
        seconds = sum(float(number) * _UNITS[unit] for number, unit in pieces)
    if not seconds:
        raise ValueError("takes a time, such as 90 s, 15min, 1h 30min or 2:30:00")
    return seconds


def moment(text: str, now: float) -> float:
    """Seconds since the epoch: `2026-11-21 18:00`, with or without an offset from UTC; `18:00`, the next time that a
    clock shows it; or the number itself. Raises `ValueError`."""
    from datetime import datetime, timedelta  # here: few programs name a moment

    text = text.strip()
    if re.fullmatch(r"\d{9,}(\.\d*)?", text):
        return float(text)
    try:
        if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
            here = datetime.fromtimestamp(now)
            hour, minute, second = (int(part) for part in (text + ":0").split(":")[:3])
            then = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (then if then > here else then + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise ValueError("takes a moment, such as 2026-11-21 18:00, 18:00, or seconds since the epoch") from None


def shown(seconds: float) -> str:
    """In the unit in which it is easily read: 0.035 s, 3.1 s, 412 s, 25 min, 7.4 h, 3.2 d."""
    if math.isinf(seconds):
        return "for ever"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    for below, unit, name in ((999.5, 1, "s"), (5970, 60, "min"), (172800, 3600, "h")):
        if seconds < below:
            return f"{seconds / unit:.{1 if unit == 3600 else 0}f} {name}"
    return f"{seconds / 86400:.1f} d"
