"""How a wrapper of each kind of call is written: what it notes before the call, and what it does with the result.

Names in the source: `c` the communicator, window or file; `at` the place of the note; `what` a request, as `seen` has
it; `known` those of several. The plain method is called once, with what the caller gave, and its result or exception
leaves; only a `status` or a list of them is put in where the caller gave none and the source must be known.
"""

from __future__ import annotations

from typing import NamedTuple

BODY = """
def {name}({params}):
    try:
        frame = getframe(1)
        site = sites[id(frame.f_code), frame.f_lasti]
    except KeyError:
        try:
            site = new_site(frame)
        except Exception as error:
            site = no_site(error)
    except Exception as error:
        site = no_site(error)
    if not site:
        return plain({args})
    at = 0
    try:
{before}
        flags = {flags}
        at = advance()
        if at >= notes.end:
            seen.grow(at)
{rows}
        {note}
    except Exception as error:
        return unnoted(error, (at, site, NUMBER), plain, {args})
    try:
        result = plain({passed})
    except BaseException as error:
        raised(at, error)
        raise
    try:
{after}
{wrote}
        returned(notes.map, at + 8, now())
        notes.map[at + 63] = RETURNED
    except Exception as error:
        stop(error)
    return result
"""


class Shape(NamedTuple):
    """How a kind fills the body: lines of code, and expressions."""

    before: str = ""
    after: str = ""
    flags: str = "0"
    peer: str = "-4"
    tag: str = "-4"
    got_peer: str = "-4"
    got_tag: str = "-4"
    request: str = "0"
    comm: str = "c.number"
    status: str = ""  # the name of a parameter, if another is passed on in its place


COMM = """
try:
    c = self._noted
except AttributeError:
    c = comm_of(self)
"""
GIVEN = "c = comm_of(comm)"
THING = """
try:
    c = self._noted
except AttributeError:
    c = any_thing(self)
"""
DEST = "dest if dest >= 0 else special[dest]"
SOURCE = "source if source >= 0 else special[source]"
TAG = "tag if tag >= 0 else -1"
WILD = "(2 if source == ANY_SOURCE else 0) | (4 if tag == ANY_TAG else 0)"
COUNT = "if dest >= 0: c.sent[dest] += 1"
RECEIVED = """
source_, tag_ = status_.Get_source(), status_.Get_tag()
if source_ >= 0: c.got[source_] += 1
else: source_, tag_ = special[source_], -4
got(notes.map, at + 32, source_, tag_)
"""
FREE = "handle = self.handle"


OPENED = "result = wrap(result)\nresult._noted = what\nseen.open.add(what[0])\n"
KEPT = "result = wrap(result)\nresult._noted = Persistent(number, what)"


def lasting(what: str) -> str:
    return f"number = next_request()\nwhat = {what}"


WAITING = """
known = [seen.current(request) for request in requests]
statuses_ = statuses
if statuses is None and any(what is not None and seen.needs_status(what) for what in known):
    statuses_ = []
"""
ONE_OF = """
known = [seen.current(request) for request in requests]
status_ = Status() if status is None else status
"""


def several(which: str, statuses: str, found: bool) -> str:
    """After a call on many requests: a row with those that it completed. `which`: their indices, when it returns."""
    return f"""
which = {which}
row = []
for order, index in enumerate(which):
    what = known[index]
    if what is not None:
        row += (what[0], *seen.completed(requests[index], what, {statuses}))
more_(notes.map, at + 56, notes.more(at, COMPLETED, row))
{"if row: flags_(notes.map, at + 22, flags | 8)" if found else ""}
"""


ISEND = "what = Begun((next_request(), False, c, dest, tag, False))"
IRECV = "wild = source == ANY_SOURCE or tag == ANY_TAG\nwhat = Begun((next_request(), True, c, source, tag, wild))"
PLAINLY = "what = Begun((next_request(), False, None, -4, -4, False))"
SEND_INIT = lasting("(False, c, dest, tag, False)")
RECV_INIT = lasting("(True, c, source, tag, source == ANY_SOURCE or tag == ANY_TAG)")
COLL_INIT = lasting("(False, None, -4, -4, False)")
ONE = "status_ = Status() if status is None else status"
CAME = """
if result:
    source_, tag_ = status_.Get_source(), status_.Get_tag()
    got(notes.map, at + 32, source_ if source_ >= 0 else special[source_], tag_ if source_ >= 0 else -4)
    flags_(notes.map, at + 22, flags | 8)
"""
LOOK = Shape(COMM + ONE, after=CAME, flags=WILD, peer=SOURCE, tag=TAG, status="status")
MATCHED = """
if result is not None:
    source_, tag_ = status_.Get_source(), status_.Get_tag()
    result = wrap(result)
    number = next_request() if source_ >= 0 else 0
    result._noted = (number, c, source_, tag_)
    got(notes.map, at + 32, source_ if source_ >= 0 else special[source_], tag_)
    request_(notes.map, at + 48, number)
    flags_(notes.map, at + 22, flags | 8)
"""
MESSAGE = "number, c, source_, tag_ = self._noted"
TOOK = """
if source_ >= 0: c.got[source_] += 1
got(notes.map, at + 32, source_ if source_ >= 0 else special[source_], tag_)
"""
TAKE_LATER = "what = Begun((next_request(), True, c, source_, tag_, False))"
WAIT = """
what = seen.current(self)
status_ = status
if what is not None and status is None and seen.needs_status(what): status_ = Status()
"""
WAITED = """
if what is not None:
    got(notes.map, at + 32, *seen.completed(self, what, status_))
"""
TESTED = """
if what is not None and DONE:
    got(notes.map, at + 32, *seen.completed(self, what, status_))
    request_(notes.map, at + 48, what[0])
    flags_(notes.map, at + 22, flags | 8)
"""
FREEING = """
held, what = getattr(self, "_noted", None), seen.current(self)
number = 0 if held is None else held.number if type(held) is Persistent else held[0]
"""
START = """
handle = self._noted
what = Begun((next_request(), *handle.what))
"""
STARTED = """
more_(notes.map, at + 56, notes.more(at, STARTED, (handle.number, what[0])))
handle.running = what
seen.open.add(what[0])
if not what[1] and what[2] is not None and what[3] >= 0: what[2].sent[what[3]] += 1
"""
START_ALL = """
row = []
for request in requests:
    handle = request._noted
    what = Begun((next_request(), *handle.what))
    row += (handle.number, what[0])
    handle.running = what
    seen.open.add(what[0])
    if not what[1] and what[2] is not None and what[3] >= 0: what[2].sent[what[3]] += 1
more_(notes.map, at + 56, notes.more(at, STARTED, row))
"""
BEGUN = "c.depth += 1\nseen.epochs += 1"
ENDED = "if result is None or result: c.depth -= 1; seen.epochs -= 1"
SOILED = "if not c.depth and not c.dirty: c.dirty = True; seen.epochs += 1"
FENCED = "if c.dirty: c.dirty = False; seen.epochs -= 1"
NEW_COMM = "result = wrap(result)\nif result != COMM_NULL: result._noted = seen.new(result, c.number, at)"
NOWHERE = NEW_COMM.replace("c.number", "0")
EVERY = "range(len(known))"
OF_EACH, IN_ORDER = (f"statuses_[{at}] if statuses_ and {at} < len(statuses_) else None" for at in ("index", "order"))
SHAPES: dict[str, Shape] = {
    "send": Shape(COMM, after=COUNT, peer=DEST, tag=TAG),
    "isend": Shape(COMM + ISEND, after=OPENED + COUNT, peer=DEST, tag=TAG, request="what[0]"),
    "send_init": Shape(COMM + SEND_INIT, after=KEPT, flags="16", peer=DEST, tag=TAG, request="number"),
    "recv": Shape(COMM + ONE, after=RECEIVED, flags=WILD, peer=SOURCE, tag=TAG, status="status"),
    "irecv": Shape(COMM + IRECV, after=OPENED, flags=WILD, peer=SOURCE, tag=TAG, request="what[0]"),
    "recv_init": Shape(COMM + RECV_INIT, after=KEPT, flags=f"16 | {WILD}", peer=SOURCE, tag=TAG, request="number"),
    "sendrecv": Shape(
        COMM + ONE + "\ntag = recvtag", after=COUNT + RECEIVED, flags=WILD, peer=DEST,
        tag="sendtag if sendtag >= 0 else -1", got_peer=SOURCE, got_tag=TAG, status="status",
    ),
    "isendrecv": Shape(
        COMM + "tag = recvtag\n" + IRECV, after=OPENED + COUNT, flags=WILD, peer=DEST,
        tag="sendtag if sendtag >= 0 else -1", got_peer=SOURCE, got_tag=TAG, request="what[0]",
    ),
    "probe": LOOK,
    "iprobe": LOOK,
    "mprobe": LOOK._replace(after=MATCHED),
    "improbe": LOOK._replace(after=MATCHED),
    "mrecv": Shape(MESSAGE, after="self._noted = (0, c, PROC_NULL, -4)\n" + TOOK, request="number"),
    "imrecv": Shape(MESSAGE + "\n" + TAKE_LATER, after="self._noted = (0, c, PROC_NULL, -4)\n"
                    "more_(notes.map, at + 56, notes.more(at, MESSAGE, (number,)))\n" + OPENED, request="what[0]"),
    "wait": Shape(WAIT, after=WAITED, request="0 if what is None else what[0]", comm="0", status="status"),
    "test": Shape(WAIT, after=TESTED, comm="0", status="status"),
    "waitall": Shape(WAITING, after=several(EVERY, OF_EACH, False), comm="0",
                     status="statuses"),
    "testall": Shape(WAITING, after=several(f"{EVERY} if DONE else ()", OF_EACH,
                                            True), comm="0", status="statuses"),
    "waitany": Shape(ONE_OF, after=several("(DONE,) if DONE >= 0 else ()", "status_", False), comm="0",
                     status="status"),
    "testany": Shape(ONE_OF, after=several("(result[0],) if result[1] and result[0] >= 0 else ()", "status_", True),
                     comm="0", status="status"),
    "waitsome": Shape(WAITING, after=several("DONE or ()", IN_ORDER, False),
                      comm="0", status="statuses"),
    "testsome": Shape(WAITING, after=several("DONE or ()", IN_ORDER, True),
                      comm="0", status="statuses"),
    "start": Shape(START, after=STARTED, request="what[0]", comm="0"),
    "startall": Shape("requests = list(requests)", after=START_ALL, comm="0"),
    "cancel": Shape("what = seen.current(self)\nif what is not None: seen.cancelled.add(what[0])", comm="0",
                    request="0 if what is None else what[0]"),
    "request_free": Shape(FREEING, after="self._noted = None\nif what is not None: seen.freed(what)",
                          request="number", flags="16 if type(held) is Persistent else 0", comm="0"),
    "coll": Shape(COMM, flags="0", peer="ROOT"),
    "icoll": Shape(COMM + PLAINLY, after=OPENED, peer="ROOT", request="what[0]"),
    "coll_init": Shape(COMM + COLL_INIT, after=KEPT, flags="16", peer="ROOT", request="number"),
    "comm_new": Shape(COMM, after=NEW_COMM),
    "icomm_new": Shape(COMM + PLAINLY, after="new, opened = result\nnew = wrap(new)\nresult = (new, opened)\n"
                       "new._noted = seen.idup(new, c, at)\nopened = wrap(opened)\nopened._noted = what\n"
                       "seen.open.add(what[0])\nresult = (new, opened)", request="what[0]"),
    "comm_of_group": Shape(COMM, after=NEW_COMM),
    "comm_free": Shape(COMM + FREE, after="seen.forget(handle)"),
    "outside": Shape(COMM, after=NEW_COMM),
    "win_new": Shape(GIVEN, after='result = wrap(result)\nseen.thing("win", result, comm, at)'),
    "file_new": Shape(GIVEN, after='result = wrap(result)\nseen.thing("file", result, comm, at)'),
    "win_free": Shape(THING + FREE, after=FENCED + "\nseen.forget(handle)"),
    "file_free": Shape(THING + FREE, after="seen.forget(handle)"),
    "win_coll": Shape(THING, after=FENCED),
    "put": Shape(THING + SOILED, peer="target_rank"),
    "iput": Shape(THING + SOILED + "\n" + PLAINLY, after=OPENED, peer="target_rank", request="what[0]"),
    "win_open": Shape(THING, after=BEGUN),
    "win_close": Shape(THING, after=ENDED),
    "win_expose": Shape(THING, after=BEGUN),
    "win_exposed": Shape(THING, after=ENDED + "\nif result: flags_(notes.map, at + 22, 8)"),
    "win_flush": Shape(THING),
    "file_coll": Shape(THING),
    "file_icoll": Shape(THING + PLAINLY, after=OPENED, request="what[0]"),
    "file_io": Shape(THING),
    "file_iio": Shape(THING + PLAINLY, after=OPENED, request="what[0]"),
    "look": Shape(comm="0"),
    "other": Shape(comm="0"),
    "abort": Shape(COMM),
    "nowhere": Shape("c = World", after=NOWHERE, comm="0"),
}  # fmt: skip


def shapes(pickled: bool) -> dict[str, Shape]:
    """By kind. What lower-case methods return has the objects along."""
    done = "result[0]" if pickled else "result"
    return {kind: Shape(*(field.replace("DONE", done) for field in shape)) for kind, shape in SHAPES.items()}


IF_WILD = """
status_ = status
if status is None and (source == ANY_SOURCE or tag == ANY_TAG): status_ = Status()
"""
RECEIVED_IF_WILD = """
source_, tag_ = (source, tag) if status_ is None else (status_.Get_source(), status_.Get_tag())
if source_ < 0: source_, tag_ = special[source_], -4
got(notes.map, at + 32, source_, tag_)
"""


def checked(shape: Shape) -> Shape:
    """In check mode what was made by a call that is not watched is unknown here, and that is no fault. What is under
    way is not counted: not all of it is seen."""
    before = shape.before.replace("handle = self._noted", "handle = lasting(self)").replace("Begun(", "(")
    before = before.replace(MESSAGE, MESSAGE.replace("self._noted", "taken(self)")).replace(SOILED, "")
    after = shape.after.replace("request._noted\n", "lasting(request)\n")
    if RECEIVED in after:
        before, after = before.replace(ONE, "") + IF_WILD, after.replace(RECEIVED, RECEIVED_IF_WILD)
    for counted in (COUNT, BEGUN, ENDED, FENCED):
        after = after.replace(counted, "")
    return shape._replace(before=before, after=after.replace(OPENED, OPENED.replace("seen.open.add(what[0])\n", "")))
