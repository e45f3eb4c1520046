"""Times as people and schedulers write them, in settings, options and answers: the one parser of them."""

from __future__ import annotations

import re

_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_WHOLE_CLOCK = re.compile(r"(?:\d+-)?\d{1,3}:\d\d:\d\d")  # less could be a time of day
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}


def clock(text: str) -> float:
    """Seconds of `D-HH:MM:SS`, with or without the parts in front, as schedulers write them. Raises `ValueError`."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if not match:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def duration(text: str) -> float:
    """Seconds, more than 0: `90 s`, `15min`, `1h 30min`, `2:30:00`, or with days `1-12:00:00`. Raises `ValueError`."""
    if _WHOLE_CLOCK.fullmatch(text.strip()):
        seconds = clock(text.strip())
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
