"""The arguments of a call, translated: rules 3.6 to 3.8 of the language.

(1) What MPI ignores is absent: what is received at ranks that are not the root, types beside MPI_IN_PLACE, anything of
    a test that found nothing.
(2) What the trace does not say is absent too: a trace that was made without a template knows peers, tags,
    communicators and requests, and no types.
"""

from __future__ import annotations

from safepoint.check.attributes import ATTRIBUTES, COUNTS, LASTING, PEERS
from safepoint.check.call import Token, Value, plain
from safepoint.check.handles import UNDEFINED_SIZE, Handles, Instance
from safepoint.check.ignored import ignored
from safepoint.check.noted import ABSENT, AFTER, BEFORE, Noted, groups
from safepoint.check.shapes import KINDS, Shape, function
from safepoint.trace import record
from safepoint.trace.signatures import Parameter

ALIASES = {"request", "sendtag", "recvtag"}  # one name for what the standard calls by several
COLLECTIVE = frozenset(
    ("coll", "icoll", "coll_init", "comm_new", "icomm_new", "win_new", "win_free", "win_coll", "file_new", "comm_free")
)
FINDS = {"test", "testall", "testany", "testsome", "iprobe", "improbe"}
EMPTY = frozenset[Token]()
NO_NAMES = frozenset[str]()
WILD = "MPI_ANY_SOURCE", "MPI_ANY_TAG"


class Given:
    """The arguments of one call as they were when it was noted. Handles are those of that moment."""

    __slots__ = (
        "_after", "_raw", "_values", "comm", "function", "handles", "held", "init", "kind", "match", "noted", "shape",
        "signature", "source", "started", "step", "what",
    )  # fmt: skip

    def __init__(self, handles: Handles, noted: Noted, shape: Shape, raws: list[int]) -> None:
        """`raws`: its row ARGUMENTS."""
        self.handles, self.noted, self.shape, self._raw = handles, noted, shape, raws
        self.function = noted.function
        self.what = what = function(noted.function)
        self.signature, self.kind = what.signature, what.kind
        self._after: dict[int, list[int]] | None = None  # None: nobody has asked
        self._values: dict[int | str, Value | None] = {}  # those that were asked for, and do not last
        self.held = shape.held  # by place, from 0
        self.comm: Instance | None = shape.comm  # that on which it works
        self.match: tuple[Token, int] | None = None
        self.step = 0
        self.source: tuple[int, int] | None = None  # what came, for a request that takes from anybody
        self.started: tuple[int, ...] = ()
        self.init: Given | None = None  # of a Start: what has made its request

    # What the call is about.

    def raw(self, at: int) -> int:
        return self._raw[at] if at < len(self._raw) else ABSENT

    def after(self, at: int) -> list[int] | None:
        if self._after is None:
            self._after = groups(self.noted.rows.get(AFTER, []))
        return self._after.get(at + 1)

    def update(self, noted: Noted) -> None:
        """It has returned."""
        self.noted, self._after = noted, None
        self.changed()

    def changed(self) -> None:
        """More is known than before."""
        self._values = {}

    def place(self, name: int | str) -> int | None:
        """Of an argument, from 0."""
        if isinstance(name, int):
            return name - 1
        found = self.what.at(name)
        if found is None and self.signature and name in ALIASES:
            if name == "sendtag" and self.takes():
                return None
            return self.what.at("array_of_requests" if name == "request" else "tag")
        return found

    def is_known_later(self, name: int | str) -> bool:
        """Whether it is known only when the call has returned."""
        at = self.place(name)
        if at is None or self.signature is None or not 0 <= at < len(self.signature.parameters):
            return False
        completes = self.kind in ("waitall", "waitany", "waitsome") and self.signature.parameters[at].kind == "request"
        return completes or any(at == made for made, _ in self.what.made)

    @property
    def absent(self) -> frozenset[str]:
        """Names of arguments that MPI does not look at."""
        found = self.shape.absent
        if found is None:
            found = self.shape.absent = ignored(self)
        return found

    def found_nothing(self) -> bool:
        """It is a test that has returned, and nothing was complete."""
        return self.kind in FINDS and self.noted.state == record.RETURNED and not self.noted.flags & record.FOUND

    # Values.

    def value(self, name: int | str) -> Value | None:
        if name in (values := self._values) or name in (values := self.shape.values):
            return values[name]
        shape, found = self.shape, self._value(name)
        values = self._values if name in shape.passing or not self.lasts(name) else shape.values
        values[name] = found
        return found

    def lasts(self, name: int | str) -> bool:
        """Whether it is the same in all calls of its shape."""
        if not self.shape.alike or name in self.shape.passing:
            return False
        if name in LASTING:
            return True
        if name in ("counts", "peer"):
            found = all(map(self.lasts, COUNTS if name == "counts" else PEERS))
        else:
            found = name not in ATTRIBUTES and self._lasts(self.place(name))
        if not found:
            self.shape.passing.add(name)
        return found

    def _lasts(self, at: int | None) -> bool:
        parameters = self.signature.parameters if self.signature is not None else ()
        if at is None or not 0 <= at < len(parameters):
            return True
        one = parameters[at]
        wild = one.kind in ("rank", "tag") and self.takes() and self._called(self.raw(at), *WILD)
        return one.by == "value" and one.kind not in ("request", "buffer") and not wild

    def _value(self, name: int | str) -> Value | None:
        if isinstance(name, str) and name in ATTRIBUTES:
            return ATTRIBUTES[name](self)
        at = self.place(name)
        if name == "comm" and at is None:
            return self.on()
        if self.function == "hide":
            return ATTRIBUTES["step"](self) if at == 0 else None
        if self.signature is None or at is None or not 0 <= at < len(self.signature.parameters):
            return None
        one = self.signature.parameters[at]
        if one.name in self.absent or self.found_nothing():
            return None
        if one.kind in KINDS:
            return self.handle(at, one)
        if one.kind == "rank":
            return self._rank(at, one)
        if one.kind == "tag":
            return self._tag(at, one)
        if one.kind == "buffer":
            return self._buffer(at, one)
        return self._int(at, one)

    def on(self) -> Value | None:
        """The communicator on which it works, however that argument is called."""
        comm = self.comm
        return Value(comm.here, comm.across, comm.names, text=comm.text()) if comm and comm.kind == "comm" else None

    def _int(self, at: int, one: Parameter) -> Value | None:
        raw = self.raw(at)
        if one.by != "value":
            values = self.after(at)
            if not values or one.kind != "int":
                return None
            tokens = frozenset[Token](values)
            return Value(
                tokens, tokens, self._called(values[0], "MPI_UNDEFINED"), values[0], text=f"{one.name}={values}"
            )
        if raw == ABSENT or one.kind not in ("int", "tag"):
            return None
        return plain(raw).but(names=self._called(raw, "MPI_UNDEFINED"))

    def _called(self, raw: int, *names: str) -> frozenset[str]:
        return frozenset(name for name in names if self.handles.constants.get(name) == raw)

    def _buffer(self, at: int, one: Parameter) -> Value | None:
        raw = self.raw(at)
        if raw == ABSENT:
            return None
        names = self._called(raw, "MPI_IN_PLACE", "MPI_BOTTOM")
        return Value(frozenset({("address", raw)}), EMPTY, names, raw, text=min(names) if names else one.name)

    def takes(self) -> bool:
        """Its tag and rank are of what it receives, or looks for."""
        return self.what.takes

    def _tag(self, at: int, one: Parameter) -> Value | None:
        raw = self.raw(at)
        if raw == ABSENT:
            if not self._raw and one.name == "tag" and self.noted.tag >= -1 and self.kind != "coll":
                raw = self.noted.tag if self.noted.tag >= 0 else self.handles.constants.get("MPI_ANY_TAG", -1)
            else:
                return None
        wild = one.name != "sendtag" and self.takes() and self._called(raw, "MPI_ANY_TAG")
        if not wild:
            return plain(raw, f"{one.name}={raw}")
        came = self.came()
        text = f"{one.name}=MPI_ANY_TAG"
        if came is None or came[1] < 0:
            return Value(EMPTY, EMPTY, frozenset({"MPI_ANY_TAG"}), None, True, text)
        return plain(came[1]).but(names=frozenset({"MPI_ANY_TAG"}), number=None, text=text)

    @property
    def wild(self) -> bool:
        """It takes from any source or tag, and nothing has come."""
        shape, names = self.shape, ("source", "tag", "recvtag")
        if shape.tame:
            return False
        shape.tame = shape.alike and all(map(self.lasts, names))
        return any(value is not None and value.any for value in map(self.value, names))

    def came(self) -> tuple[int, int] | None:
        """Rank in the communicator and tag of what it received. None: nothing yet."""
        if self.source is not None:
            return self.source
        taken = self.noted.got_peer, self.noted.got_tag
        if self.kind in ("recv", "sendrecv", "probe", "iprobe", "mprobe", "improbe", "mrecv"):
            return taken if self.noted.state == record.RETURNED and taken[0] >= 0 else None
        return None

    def world(self, rank: int) -> int:
        """In MPI_COMM_WORLD; -1: it is none of its communicator."""
        peers = self.comm.peers if self.comm is not None else ()
        return peers[rank] if 0 <= rank < len(peers) else -1

    def _rank(self, at: int, one: Parameter) -> Value | None:
        raw = self.raw(at)
        if raw == ABSENT:
            if self._raw or self.noted.peer == record.NONE:
                return None
            raw = self._of_note(self.noted.peer)
        names = self._called(raw, "MPI_PROC_NULL", "MPI_ROOT" if one.name == "root" else "MPI_PROC_NULL")
        if one.name == "root" and not (self.comm is not None and self.comm.inter):
            names = frozenset()  # these are of intercommunicators; elsewhere they are negative numbers
        text = f"{one.name}={min(names) if names else raw}"
        if one.name == "source" and self._called(raw, "MPI_ANY_SOURCE"):
            came = self.came()
            text = "source=MPI_ANY_SOURCE"
            if came is None:
                return Value(EMPTY, EMPTY, frozenset({"MPI_ANY_SOURCE"}), None, True, text)
            return self.of_rank(came[0], text).but(names=frozenset({"MPI_ANY_SOURCE"}), number=None)
        if one.name == "root" and self.comm is not None and self.comm.inter:
            # In one group the root says MPI_ROOT and the others MPI_PROC_NULL, in the other group all name its rank.
            return Value(EMPTY, EMPTY, names, None if names else raw, text=text)
        if names:
            tokens = frozenset[Token](("const", name) for name in names)
            return Value(tokens, tokens, names, text=text)
        return self.of_rank(raw, text)

    def _of_note(self, peer: int) -> int:
        words = {record.ANY_SOURCE: "ANY_SOURCE", record.PROC_NULL: "PROC_NULL", record.ROOT: "ROOT"}
        return self.handles.constants.get(f"MPI_{words[peer]}", peer) if peer in words else peer

    def of_rank(self, rank: int, text: str) -> Value:
        world = self.world(rank)
        if world >= 0:
            tokens: frozenset[Token] = frozenset((world,))
        else:  # outside of the world, or of the communicator: equal to itself in this process alone
            return Value(frozenset({("rank", rank)}), EMPTY, number=rank, text=text)
        return Value(tokens, tokens, number=rank, text=text)

    def handle(self, at: int, one: Parameter) -> Value | None:
        if one.kind == "request":
            return self._request(at, one)
        held = self.held.get(at)
        if not held:
            if self.comm is not None and one.kind == self.comm.kind and not self._raw:  # (2)
                held = [self.comm]
            else:
                return None
        here = frozenset(token for instance in held for token in instance.here)
        across = frozenset(token for instance in held for token in instance.across)
        names = frozenset(name for instance in held for name in instance.names)
        return Value(here, across, names, None, text=", ".join(instance.text() for instance in held[:4]))

    def _request(self, at: int, one: Parameter) -> Value | None:
        """(3.8) A request that is made has its variable and its number, one that is completed its number."""
        numbers = self.requests()
        tokens: list[Token] = [("request", number) for number in numbers if number]
        creates = one.by == "pointer" and self.kind not in ("wait", "test", "start", "cancel", "request_free", "look")
        if creates and (address := self.raw(at)) not in (ABSENT, 0):
            tokens.append(("variable", address))
        names = self._nulls(at)
        if not tokens and not names:
            return None
        text = "" if numbers else f"request {min(names, default='request')}"
        each = self._each(numbers) if len(numbers) > 1 else ()
        return Value(frozenset(tokens), EMPTY, names, None, False, text, each, numbers)

    def _each(self, numbers: list[int]) -> tuple[Value, ...]:
        """One request each; one that was started has two numbers."""
        width = 2 if self.started else 1
        parts = [numbers[at : at + width] for at in range(0, len(numbers), width)]
        return tuple(
            Value(frozenset([("request", number) for number in part]), EMPTY, requests=part[-1:]) for part in parts
        )

    def _nulls(self, at: int) -> frozenset[str]:
        if BEFORE not in self.noted.rows:
            return NO_NAMES
        null = self.handles.constants.get("MPI_REQUEST_NULL", ABSENT)
        raws = self.noted.rows.get(record.ARGUMENTS) and self._before().get(at + 1)
        return frozenset({"MPI_REQUEST_NULL"}) if raws and raws.count(null) == len(raws) else NO_NAMES

    def _before(self) -> dict[int, list[int]]:
        return groups(self.noted.rows.get(BEFORE, []))

    def requests(self) -> list[int]:
        """Numbers of the requests that it makes or is about."""
        if self.started:
            return list(self.started)
        completed = self.noted.rows.get(record.COMPLETED)
        if completed is not None:
            return completed[::3]
        return [self.noted.request] if self.noted.request else []

    # What it makes.

    def makes(self, at: int, one: Parameter) -> bool:
        """It is a handle that the call creates."""
        return self.what.makes(one)

    def size(self, count: str, datatype: str) -> Value | None:
        """In bytes."""
        at, of = self.what.at(count), self.what.at(datatype)
        if at is None or of is None or count in self.absent or datatype in self.absent:
            return None
        held = self.held.get(of)
        number = self.raw(at)
        if number == ABSENT or not held or held[0].size == UNDEFINED_SIZE:
            return None
        return plain(number * held[0].size)


def described(given: Given) -> str:
    """`Isend(buf, 100, MPI_DOUBLE, dest=2, tag=7, MPI_COMM_WORLD, request r12)`."""
    if given.signature is None:
        return given.function
    words = []
    for at, one in enumerate(given.signature.parameters):
        value = given.value(at + 1)
        words.append(value.said() if value is not None and value.said() else one.name)
    return f"{given.function}({', '.join(words)})"
