"""The few values that a program gives along with a set: `hide(step, extra={"loss": 0.3})`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from safepoint.disk import codec
from safepoint.errors import UsageError

LIMIT = 4096  # bytes of JSON: it lies in every record, and is read whenever somebody looks


def checked(extra: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """As JSON has them; numbers of numpy become those of Python. Raises `UsageError` naming what cannot be kept."""
    if extra is None:
        return None
    if not isinstance(extra, Mapping):
        raise UsageError(f"hide: extra takes a dict of a few JSON values, not {extra!r:.100}")
    try:
        found = {_name(key): _value(f"extra[{key!r}]", value) for key, value in extra.items()}
        size = len(json.dumps(found))
    except (RecursionError, ValueError) as error:  # it contains itself; or an integer has more digits than Python shows
        raise UsageError(f"hide: extra takes a few JSON values: {error}") from error
    if size > LIMIT:
        raise UsageError(f"hide: extra has {size} bytes as JSON, and {LIMIT} is the most: keep it in a file of the set")
    return found


def key(extra: Mapping[str, Any] | None) -> int:
    """What the agreement of ranks knows it by."""
    return int(codec.checksum(json.dumps(extra, sort_keys=True).encode())[:15], 16) if extra else 0


def _name(key: Any) -> str:
    if type(key) is not str or not key or not key.isprintable():
        raise UsageError(f"hide: extra: its names are texts, not {key!r:.100}")
    return key


def _value(where: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"hide: {where}: {error}") from None
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_value(f"{where}[{number}]", each) for number, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {_name(key): _value(f"{where}[{key!r}]", each) for key, each in value.items()}
    plain = getattr(value, "item", None)  # of numpy, or a tensor of one value
    if callable(plain) and getattr(value, "ndim", None) == 0 and type(item := plain()) is not type(value):
        return _value(where, item)
    raise UsageError(f"hide: {where} takes a JSON value, not {value!r:.100}")


def number(extra: Mapping[str, Any] | None, name: str) -> float | None:
    """The value of this name, if it is a number that can be compared."""
    value = (extra or {}).get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return None if math.isnan(found) else found
