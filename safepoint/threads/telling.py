"""The result of a comparison in words: those of Litvinovich (2009), and where in the program that is."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from safepoint import words
from safepoint.threads import kinds
from safepoint.threads.compare import Difference, Event, Found, Rules
from safepoint.threads.difference import Iteration, filled
from safepoint.threads.hints import by_hand

EQUAL = "Completed comparing. No inconsistencies detected."
_LOOPS = (kinds.LOOP, kinds.SECTIONS)


def lines(found: Found) -> list[str]:
    """The result, in lines."""
    difference = found.difference
    if difference is None:
        said = [f"Cannot tell: {found.undecided}"] if found.undecided else [EQUAL]
        return said + [f"  {note}" for note in found.notes]
    said = [_first(difference), f"  {_where(difference)}"]
    texts = (_between(difference), by_hand(difference, Rules()), _deviates(difference), _times(difference))
    said += [f"  {text}" for text in texts if text]
    if difference.last:
        a, b = (_text(each, None) for each in difference.last)
        place = _place(difference.last[0])
        said.append(f"  the last value before it that is not the same in all bits: {place}: A: {a}, B: {b}")
    for site in difference.unset:
        of = f" in {_at(difference.region)}" if difference.region else ""
        said.append(
            f"  {site.name} is PRIVATE{of} and read at line {site.line} before it is written: it has no value there"
        )
    if found.stopped_pids:
        pids = " and ".join(str(pid) for pid in found.stopped_pids)
        said.append(f"  stopped (SIGSTOP), to be looked at with gdb -p, or to go on with kill -CONT: {pids}")
    return said + [f"  {note}" for note in found.notes]


def place(difference: Difference) -> str:
    """Where it is, short: `region 77, solver.f90:26-34, b`."""
    event = difference.a or difference.b
    names = [difference.place]
    if difference.region:
        end = difference.region.line2
        names.append(_at(difference.region) + (f"-{end}" if end > difference.region.line else ""))
    elif event:
        names.append(_place(event))
    if event and event.kind in (kinds.WRITE, kinds.READ, kinds.DIGEST):
        names.append(event.site.name)
    return ", ".join(names)


def _first(difference: Difference) -> str:
    a, b = (_side(name, each, difference) for name, each in (("A", difference.a), ("B", difference.b)))
    text = f"Inconsistency: {a}, {b}"
    if difference.what == "value":
        return text
    expected, read = (_short(event) if event else "nothing" for event in (difference.a, difference.b))
    if difference.a and difference.b and a.partition(":")[2] == b.partition(":")[2]:
        expected += _apart(difference.a, difference.b)
        read += _apart(difference.b, difference.a)
    place = f" at {difference.b.site.line}" if difference.b else ""
    return f"{text} (expected {expected}, read {read}{place})"


def _apart(event: Event, other: Event) -> str:
    """What tells an event from one that reads the same."""
    if event.type != other.type:
        return f" of type {kinds.TYPES.get(event.type, event.type)}"
    if event.site.number != other.site.number:
        return f" of place {event.site.number}"
    if event.extra != other.extra:
        return f" with {event.extra} in its head"
    visit = event.words[0]
    if visit == other.words[0] or event.kind not in (kinds.REGION, kinds.REGION_END, kinds.ENTER, kinds.LEAVE):
        return ""
    return f" of visit {visit}" if visit < kinds.NESTED else " of a nested region"


def _side(name: str, event: Event | None, difference: Difference) -> str:
    if event is None:
        return f"{name}: no such {_missing(difference)}"
    return f"{name}({event.line}): {_place(event)}={_text(event, difference.iteration)}"


def _missing(difference: Difference) -> str:
    event = difference.a or difference.b
    if event and event.kind == kinds.ITER:
        return "iteration"
    return "event in that region" if difference.nested else "event; its trace ends before"


def _place(event: Event) -> str:
    return f"{event.site.file}:{event.site.line}"


def _at(site: Any) -> str:
    return f"{site.file}:{site.line}"


def _short(event: Event) -> str:
    """What happened, without values: `write b`."""
    kind = kinds.NAMES.get(event.kind, str(event.kind))
    named = event.kind in (kinds.WRITE, kinds.READ, kinds.DIGEST, kinds.CALL, kinds.RETURN)
    return f"{kind} {event.site.name}" if named and event.site.name else kind


def _text(event: Event, item: Iteration | None) -> str:
    """What happened, with values: `write b(2,2) 3.0`."""
    numbers = [value - (1 << 64) if value >> 63 else value for value in event.words]
    if event.kind in (kinds.WRITE, kinds.READ):
        return f"{kinds.NAMES[event.kind]} {filled(event.site.name, item)} {shown(event)}"
    if event.kind == kinds.DIGEST:
        return f"digest {event.site.name} ({_digest(event)})"
    if event.kind == kinds.LOOP:
        bounds = [numbers[at : at + 3] for at in range(0, len(numbers), 3)]
        return "loop " + " x ".join(f"{low}..{high}" + (f" step {s}" if s != 1 else "") for low, high, s in bounds)
    if event.kind == kinds.ITER:
        return f"iteration {_equation(event.site.name, numbers)}"
    return _short(event)


def _equation(names: str, numbers: list[int]) -> str:
    return f"{names.replace(' ', '')} = {','.join(map(str, numbers))}" if names else ",".join(map(str, numbers))


def shown(event: Event) -> str:
    """A value as the program would write it."""
    value = event.value
    if event.kind == kinds.DIGEST:
        return _digest(event)
    if event.type == kinds.REAL4:
        return str(np.float32(value))
    if event.type == kinds.COMPLEX4:
        return f"({np.float32(value.real)},{np.float32(value.imag)})"
    if isinstance(value, complex):
        return f"({value.real!r},{value.imag!r})"
    if isinstance(value, bool):
        return "T" if value else "F"
    return repr(value)


def _digest(event: Event) -> str:
    count, low, high = event.words[:3]
    of = kinds.TYPES.get(event.type, "bytes")
    text = f"{count} {of}, {high:016x}{low:016x}"
    if event.extra and len(event.words) >= 7:
        least, most, mean, root = struct.unpack("<4d", struct.pack("<4Q", *event.words[3:7]))
        text += (
            f", {_alone(event.type, least)}"
            if count == 1
            else f", min {least!r}, max {most!r}, mean {mean!r}, rms {root!r}"
        )
        if len(event.words) > 7 and count > 1:
            text += f", by place {struct.unpack('<d', struct.pack('<Q', event.words[7]))[0]!r}"
    return text


def _alone(type: int, value: float) -> str:
    """The value of a digest of one element."""
    if kinds.LOGICAL1 <= type <= kinds.LOGICAL8:
        return "T" if value else "F"
    return str(int(value)) if kinds.INTEGER1 <= type <= kinds.INTEGER8 and math.isfinite(value) else repr(value)


def _where(difference: Difference) -> str:
    """Iteration, threads, and how much is equal before."""
    parts = []
    if item := difference.iteration:
        around = "".join(f" in iteration {_numbers(each)}" for each in reversed(difference.around))
        parts.append(f"{'section' if item.section else 'iteration'} {_numbers(item)}{around}")
    else:
        parts += [f"in iteration {_numbers(each)}" for each in difference.around]
    at = f" ({_at(difference.region)})" if difference.inside and difference.region else ""
    parts.append(f"{difference.place}{at}")
    threads = [(n, e) for n, e in (("A", difference.a), ("B", difference.b)) if e]
    parts.append(", ".join(f"{name}: thread {event.team}" for name, event in threads))
    equal = f"until there {words.count(difference.regions_equal, 'region')}"
    if difference.iterations:
        equal += f" and {difference.iterations_equal} of {words.count(difference.iterations, 'iteration')}"
    return "; ".join([*parts, f"{equal} equal"])


def _numbers(item: Iteration) -> str:
    return _equation(",".join(item.names), list(item.numbers))


def _between(difference: Difference) -> str:
    """By how much two numbers differ."""
    a, b = difference.a, difference.b
    if difference.what != "value" or a is None or b is None or a.kind == kinds.DIGEST:
        return ""
    x, y = a.value, b.value
    if isinstance(x, bool) or not isinstance(x, (int, float, complex)) or not isinstance(y, (int, float, complex)):
        return ""
    size = max(abs(x), abs(y))
    if isinstance(x, int) or not math.isfinite(size) or not size:
        return ""
    return f"relative difference {abs(x - y) / size:.2g}"


def _deviates(difference: Difference) -> str:
    if difference.deviates is None:
        return ""
    a, b = difference.deviates
    return f"thread {b} of B does not do what thread {a} of A does, outside of what they share out"


def _times(difference: Difference) -> str:
    if difference.bag:
        return "in CRITICAL, where the order is chance: a value that only one of them has"
    return f"the {difference.time}. time that it is done in this iteration" if difference.time > 1 else ""


def as_json(found: Found) -> dict[str, Any]:
    """For --json."""
    return {
        "equal": found.difference is None and not found.undecided, "code": found.code, "regions": found.regions,
        "difference": None if found.difference is None else _difference(found.difference), "notes": found.notes,
        "undecided": found.undecided or None, "stopped_pids": found.stopped_pids, "text": lines(found),
    }  # fmt: skip


def _difference(difference: Difference) -> dict[str, Any]:
    item = difference.iteration
    return {
        "what": difference.what, "region": difference.visit, "inside": difference.inside,
        "region_file": difference.region.file if difference.region else None,
        "region_line": difference.region.line if difference.region else None,
        "a": _event(difference.a), "b": _event(difference.b),
        "iteration": None if item is None else {"names": list(item.names), "numbers": list(item.numbers)},
        "around": [{"names": list(each.names), "numbers": list(each.numbers)} for each in difference.around],
        "time": difference.time, "regions_equal": difference.regions_equal,
        "iterations_equal": difference.iterations_equal, "iterations": difference.iterations,
        "deviates": None if difference.deviates is None else list(difference.deviates),
        "last": None if difference.last is None else [_event(each) for each in difference.last],
        "unset": [site.name for site in difference.unset], "critical": difference.bag,
    }  # fmt: skip


def _event(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    found: dict[str, Any] = {
        "thread": event.thread, "team": event.team, "line_of_trace": event.line, "file": event.site.file,
        "line": event.site.line, "name": event.site.name, "kind": kinds.NAMES.get(event.kind, str(event.kind)),
    }  # fmt: skip
    if event.kind in (kinds.WRITE, kinds.READ, kinds.DIGEST):
        found |= {"type": kinds.TYPES.get(event.type, "?"), "value": shown(event)}
    return found
