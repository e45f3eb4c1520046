"""Notes of a rank that never ran: a test says what it calls, and gets what `check` makes of it."""

from __future__ import annotations

from typing import Any

from safepoint.check.call import Call
from safepoint.check.named import Thing
from safepoint.check.noted import ABSENT, AFTER, BEFORE, Noted
from safepoint.check.shapes import OPENS
from safepoint.check.translated import Translator
from safepoint.trace import record, roles
from safepoint.trace.signatures import signatures

KINDS = (
    "COMM", "DATATYPE", "REQUEST", "OP", "GROUP", "WIN", "FILE", "MESSAGE", "INFO", "ERRHANDLER", "SESSION",
)  # fmt: skip
NULL = {f"MPI_{name}_NULL": 0x100 + at for at, name in enumerate(KINDS)}
CONSTANTS = {
    **NULL, "MPI_COMM_WORLD": 0x200, "MPI_COMM_SELF": 0x201, "MPI_INT": 0x300, "MPI_DOUBLE": 0x301, "MPI_BYTE": 0x302,
    "MPI_PACKED": 0x303, "MPI_SUM": 0x400, "MPI_MAX": 0x401, "MPI_NO_OP": 0x402, "MPI_ANY_SOURCE": -2,
    "MPI_PROC_NULL": -1, "MPI_ROOT": -3, "MPI_ANY_TAG": -1, "MPI_UNDEFINED": -32766, "MPI_IN_PLACE": -1,
    "MPI_BOTTOM": 0, "MPI_ERR_TAG": 4, "MPI_ERR_RANK": 6, "MPI_ERR_TRUNCATE": 14, "MPI_SUCCESS": 0, "TAG_UB": 1 << 20,
}  # fmt: skip
WORLD, SELF = CONSTANTS["MPI_COMM_WORLD"], CONSTANTS["MPI_COMM_SELF"]
SPECIAL = {-2: record.ANY_SOURCE, -1: record.PROC_NULL, -3: record.ROOT}


def spans(text: str) -> tuple[range, ...]:
    words = [word.partition("-") for word in text.split(",") if word]
    return tuple(range(int(first), int(last or first) + 1) for first, _, last in words)


class Rank:
    """One rank. `call` returns what `check` sees of it; arguments are by their names in C, those that are not given
    are 0."""

    def __init__(self, rank: int = 0, size: int = 4) -> None:
        self.rank, self.translator = rank, Translator(rank, size, CONSTANTS)
        self.things: dict[int, tuple[int, Thing]] = {}
        self._number, self._time, self._request = -1, 1000, 0
        self._entered: dict[int, tuple[str, dict[str, Any], dict[str, Any]]] = {}

    def request(self) -> int:
        """The number that the next request will have."""
        return self._request + 1

    def call(self, function: str, *, members: str = "", remote: str = "", **arguments: Any) -> list[Call]:
        """A call that returned. Keys with a capital are fields of the note (`Got_peer=1`); `after={…}` what it wrote,
        `before={…}` handles that it was given the address of; `members`: those of what it makes."""
        self._number += 1
        if members:
            family = function.partition("_")[0].lower()
            kind = "comm" if family == "intercomm" else family
            thing = Thing(kind, "", 1, self._number, spans(members), spans(remote), False)
            self.things[self._number] = len(self.things) + 3, thing
        return self.translator.calls(self._noted(self._number, function, arguments, record.RETURNED), self.things)

    def enter(self, function: str, **arguments: Any) -> tuple[int, list[Call]]:
        """One that has not returned: its number, for `leave`."""
        self._number += 1
        self._entered[self._number] = function, arguments, {}
        noted = self._noted(self._number, function, arguments, record.ENTERED)
        return self._number, self.translator.calls(noted, self.things)

    def leave(self, number: int, **more: Any) -> list[Call]:
        function, arguments, _ = self._entered.pop(number)
        noted = self._noted(number, function, {**arguments, **more}, record.RETURNED)
        return self.translator.calls(noted, self.things)

    def one(self, function: str, **arguments: Any) -> Call:
        """The call itself, without its messages."""
        return self.call(function, **arguments)[0]

    def _noted(self, number: int, function: str, arguments: dict[str, Any], state: int) -> Noted:
        self._time += 10
        fields = {name.lower(): value for name, value in arguments.items() if name[0].isupper()}
        rows = dict(fields.pop("rows", {}))
        signature = signatures().get(function)
        if signature is not None and not fields.pop("bare", False):
            values = {one.name: arguments.get(one.name, 0) for one in signature.parameters}
            rows[record.ARGUMENTS] = [CONSTANTS.get(value, value) for value in values.values()]
            for kind, which in ((BEFORE, "before"), (AFTER, "after")):
                row: list[int] = []
                for name, given in arguments.get(which, {}).items():
                    listed = given if isinstance(given, list) else [given]
                    at = next(at for at, one in enumerate(signature.parameters, 1) if one.name == name)
                    row += [at, len(listed), *(CONSTANTS.get(value, value) for value in listed)]
                if row and (kind == BEFORE or state == record.RETURNED):
                    rows[kind] = row
        elif function == "hide":
            rows.setdefault(record.ARGUMENTS, [arguments.get("step", ABSENT)])
        opens = roles.kind(function) in OPENS
        if opens and "request" not in fields and state == record.RETURNED:
            self._request += 1
            fields["request"] = self._request
        leave = self._time if state != record.ENTERED else 0
        whole = {
            "enter": self._time - 5, "leave": leave, "site": number + 1, "flags": 0, "peer": record.NONE,
            "tag": record.NONE, "got_peer": record.NONE, "got_tag": record.NONE, "bytes": 0, "request": 0, "comm": 0,
            "thread": 0, "result": record.NO_RESULT if state == record.ENTERED else 0, "state": state,
        }  # fmt: skip
        return Noted(number, function, rows=rows, **{**whole, **fields})  # type: ignore[arg-type]
