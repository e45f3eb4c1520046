"""Messages as templates see them: `message_sent` and `message_received`, whichever function sends or receives.

Sendrecv is both, Start is what the persistent request is, Startall is as many, Mrecv takes what was probed. Their
arguments have the names of Send and Recv. One that is not complete has to wait: it may be cancelled, and what takes
from any source is not known before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from safepoint.check.arguments import Given
from safepoint.check.call import Value, plain
from safepoint.check.noted import Noted
from safepoint.check.shapes import UNKNOWN, Shape
from safepoint.trace import record

SENT, RECEIVED = "message_sent", "message_received"
PLACES = {
    SENT: ("buf", "count", "datatype", "dest", "tag", "comm", "request"),
    RECEIVED: ("buf", "count", "datatype", "source", "tag", "comm", "request"),
}
BOTH = {  # of functions that send and receive
    SENT: {"buf": "sendbuf", "count": "sendcount", "datatype": "sendtype", "tag": "sendtag"},
    RECEIVED: {"buf": "recvbuf", "count": "recvcount", "datatype": "recvtype", "tag": "recvtag"},
}
REPLACED = {SENT: {"tag": "sendtag"}, RECEIVED: {"tag": "recvtag"}}
NAMES: dict[str, str] = {}  # of all others
SENDS = {"send", "isend", "sendrecv", "isendrecv"}
TAKES = {"recv", "irecv", "sendrecv", "isendrecv"}
LASTS = {"send_init", "recv_init"}
PROBES = {"mprobe", "improbe"}
PARTS = {"Psend_init", "Precv_init"}  # a message in parts, whose sides need not agree on their counts


class Message:
    """The arguments of one message. `who`: the call that names its peer and tag; `what`: that with its buffer; `by`:
    that of the program."""

    __slots__ = ("_names", "_places", "by", "number", "shape", "what", "who")

    def __init__(self, function: str, who: Given, what: Given, by: Given, number: int) -> None:
        self.who, self.what, self.by, self.number = who, what, by, number
        self._places = PLACES[function]
        both = REPLACED if who.function.endswith("_replace") else BOTH
        self._names = both[function] if who.what.both else NAMES
        self.shape = _shape(function, who, by) if who is what and who.shape.alike else None

    def value(self, name: int | str) -> Value | None:
        shape = self.shape
        if shape is None:
            return self._value(name)
        found: Value | None = shape.values.get(name, UNKNOWN)
        if found is UNKNOWN:
            found = self._value(name)
            if name not in shape.passing and self.lasts(name):
                shape.values[name] = found
        return found

    def lasts(self, name: int | str) -> bool:
        """Whether it is the same in all messages of its shape."""
        shape = self.shape
        if shape is None or name in shape.passing:
            return False
        name = self._named(name)
        if name == "bytes":
            found = self._size() is not None
        else:
            found = name not in ("request", "new", "buf") and self.who.lasts(self._names.get(name, name))
        if not found:
            shape.passing.add(name)
        return found

    def _named(self, name: int | str) -> str:
        """ "" if it has none at this place."""
        if isinstance(name, int):
            return self._places[name - 1] if 0 < name <= len(self._places) else ""
        return name

    def _size(self) -> Value | None:
        """In bytes."""
        count, of = (self._names.get(word, word) for word in ("count", "datatype"))
        return self.what.size(count, of)

    def _value(self, name: int | str) -> Value | None:
        name = self._named(name)
        if not name:
            return None
        if name in ("request", "new"):
            tokens = frozenset({("request", self.number)})
            return Value(tokens, frozenset(), requests=(self.number,)) if self.number else None
        if name in ("buf", "count", "datatype"):
            return self.what.value(self._names.get(name, name))
        if name == "bytes":
            return self._size() or self._noted()
        if name == "function":
            return self.by.value("function")
        return self.who.value(self._names.get(name, name))

    def _noted(self) -> Value | None:
        """As the tracer has it, of what is one message alone."""
        noted = self.what.noted
        known = noted.bytes != record.UNKNOWN and noted.state == record.RETURNED and noted.rows.get(record.ARGUMENTS)
        return plain(noted.bytes) if known and not self._names else None

    @property
    def wild(self) -> bool:
        """It takes from anybody, and nothing has come."""
        if self.shape is not None and self.who.shape.tame:
            return False
        found = [self.value(name) for name in ("source", "tag")] if "source" in self._places else []
        return any(value is not None and value.any for value in found)


def _shape(function: str, who: Given, by: Given) -> Shape:
    """Of a message that is all of what `who` has named."""
    messages, key = who.shape.messages, (function, by.function)
    found = messages.get(key)
    if found is None:
        found = messages[key] = Shape(True, who.comm, who.held)
    return found


class Made(NamedTuple):
    """A message that a call is."""

    function: str
    message: Message
    request: int  # that it waits for; 0: none


class Messages:
    """Of one rank: what its persistent requests and probed messages are."""

    def __init__(self) -> None:
        self._lasting: dict[int, Given] = {}
        self._probed: dict[int, Message] = {}

    def of(self, given: Given, noted: Noted) -> list[Made]:
        """Those that this call sends or takes, as far as that is known when it is entered."""
        kind = given.kind
        found: list[Made] = []
        if kind in SENDS and self._goes(given, "dest"):
            found.append(self._one(SENT, given, given, given, noted.request if kind[0] == "i" else 0))
        if kind in TAKES and self._goes(given, "source"):
            found.append(self._one(RECEIVED, given, given, given, noted.request if kind[0] == "i" else 0))
        return found

    def after(self, given: Given, noted: Noted) -> Iterable[Made]:
        """Those that are known once it has returned; and what later calls will need."""
        kind, row = given.kind, noted.rows.get(record.STARTED)
        if given.function in PARTS or not (row or kind in LASTS or kind in PROBES):
            return ()
        return self._after(given, noted, row or [])

    def _after(self, given: Given, noted: Noted, row: list[int]) -> Iterator[Made]:
        kind = given.kind
        if kind in LASTS and noted.request:
            self._lasting[noted.request] = given
        elif kind in PROBES and noted.request and noted.got_peer >= 0:
            made = self._one(RECEIVED, given, given, given, noted.request)  # it is matched here, whenever it is taken
            self._probed[noted.request] = made.message
            yield made
        for lasting, running in zip(row[::2], row[1::2], strict=False):
            if (init := self._lasting.get(lasting)) is None or not running:
                continue
            function = SENT if init.kind == "send_init" else RECEIVED
            if self._goes(init, "dest" if function == SENT else "source"):
                started = copy.copy(init)
                started.source = None
                started.changed()
                yield self._one(function, started, started, given, running)

    def init(self, started: tuple[int, ...]) -> Given | None:
        """What has made the request that was started, if it is a message, and one."""
        return self._lasting.get(started[0]) if len(started) == 2 else None

    def taken(self, given: Given, noted: Noted) -> int:
        """The number of the message that a Mrecv takes, which is known from now on; 0: of one that nobody has seen."""
        number = noted.request if given.kind == "mrecv" else next(iter(noted.rows.get(record.MESSAGE, [])), 0)
        message = self._probed.pop(number, None)
        if message is None:
            return 0
        message.what = message.by = given
        message.number = noted.request if given.kind == "imrecv" else 0
        return number

    def _goes(self, given: Given, name: str) -> bool:
        """Not to MPI_PROC_NULL."""
        value = given.value(name)
        return value is not None and "MPI_PROC_NULL" not in value.names

    def _one(self, function: str, who: Given, what: Given, by: Given, request: int) -> Made:
        return Made(function, Message(function, who, what, by, request), request)
