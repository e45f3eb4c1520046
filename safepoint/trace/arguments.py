"""Which value each argument of the C binding has when a method of mpi4py is called: as lines of a wrapper.

By name, as a rule: `dest` of `Isend(buf, dest, tag)` is `dest` of `MPI_Isend`. A buffer is three arguments, which
`specs` reads; the object of the method is the first handle of its kind. Names in the source: see `shapes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safepoint.trace import quick, roles
from safepoint.trace.record import AFTER, ARGUMENTS, BEFORE, HEADER, NOTE
from safepoint.trace.signatures import HANDLES, Parameter, signatures

KINDS = frozenset(HANDLES.values())
PACKS = "packs_"  # what packs a row, with the letters of its values
BOTH_ROWS = "5qQ"  # and another row after it, of one handle
SENT, RECEIVED, BOTH = "sa, sn, st", "ra, rn, rt", "(sa, sn, st), (ra, rn, rt)"
# What stands for an argument that mpi4py calls otherwise; the first of these words that the method has.
OTHERWISE = {
    "assert": ("assertion",), "comm_keyval": ("keyval",), "type_keyval": ("keyval",), "win_keyval": ("keyval",),
    "comm2": ("comm",), "group2": ("group",), "dest": ("source",), "value_type": ("value",), "index_type": ("index",),
    "filetype": ("etype if filetype is None else filetype",), "nnodes": ("nodes",), "level": ("level",),
}  # fmt: skip
# What is the length of one of these words.
LENGTHS = {
    "n": ("ranks", "sources"), "count": ("blocklengths", "displacements", "requests", "command"),
    "incount": ("requests",), "ndims": ("sizes", "gsizes", "dims"), "length": ("partitions",), "nnodes": ("index",),
    "indegree": ("sources",), "outdegree": ("destinations",),
}  # fmt: skip
ARRAYS = {"array_of_requests": "requests", "array_of_types": "datatypes"}
COLLECTIVE = {
    "Gather": "gather_(c, sendbuf, recvbuf, root, False)", "Gatherv": "gather_(c, sendbuf, recvbuf, root, True)",
    "Scatter": "scatter_(c, sendbuf, recvbuf, root, False)", "Scatterv": "scatter_(c, sendbuf, recvbuf, root, True)",
    "Allgather": "allgather_(c, sendbuf, recvbuf, False)", "Allgatherv": "allgather_(c, sendbuf, recvbuf, True)",
    "Alltoall": "alltoall_(c, sendbuf, recvbuf, False)", "Alltoallv": "alltoall_(c, sendbuf, recvbuf, True)",
    "Neighbor_allgather": "neighbors_(c, self, sendbuf, recvbuf, False, False)",
    "Neighbor_allgatherv": "neighbors_(c, self, sendbuf, recvbuf, True, False)",
    "Neighbor_alltoall": "neighbors_(c, self, sendbuf, recvbuf, False, True)",
    "Neighbor_alltoallv": "neighbors_(c, self, sendbuf, recvbuf, True, True)",
    "Reduce": "reduce_(c, sendbuf, recvbuf, root)", "Allreduce": "allreduce_(c, sendbuf, recvbuf)",
    "Scan": "allreduce_(c, sendbuf, recvbuf)", "Exscan": "allreduce_(c, sendbuf, recvbuf)",
    "Reduce_scatter": "reduce_scatter_(c, sendbuf, recvbuf, False)",
    "Reduce_scatter_block": "reduce_scatter_(c, sendbuf, recvbuf, True)",
}  # fmt: skip
OF_BOTH = {
    "sendbuf": "sa", "sendcount": "sn", "sendtype": "st", "recvbuf": "ra", "recvcount": "rn", "recvtype": "rt",
    "count": "rn", "datatype": "rt", "inbuf": "sa", "inoutbuf": "ra",
}  # fmt: skip
OF_ONE = {"buf": "ra", "buffer": "ra", "count": "rn", "datatype": "rt"}
OF_ORIGIN = {"origin_addr": "sa", "origin_count": "sn", "origin_datatype": "st"}
OF_TARGET = {"target_disp": "td", "target_count": "tn", "target_datatype": "tt"}
OF_RESULT = {"result_addr": "ra", "result_count": "rn", "result_datatype": "rt", "datatype": "st"}
PICKLED = {
    "sendtype": "BYTE", "recvtype": "BYTE", "datatype": "BYTE", "sendcount": "ABSENT", "recvcount": "ABSENT",
}  # fmt: skip
MEMORY = {"base": "address_", "buffer": "address_", "location": "address_", "size": "size_of_"}
READING = {"Start", "Startall", "Cancel", "Type_commit", "Comm_disconnect", "File_close",
           "Session_finalize"}  # fmt: skip
UNTOLD = {"Init", "Init_thread", "Info_get"}  # what these write is not what mpi4py returns


class Method(NamedTuple):
    """Of mpi4py, and the function that it is."""

    function: str
    family: str  # kind of its object, one of HANDLES; or ""
    words: Sequence[str]
    of_class: bool
    pickled: bool

    @property
    def base(self) -> str:
        """The blocking function of which this is a form."""
        name = self.function.removesuffix("_init")
        return name[1:].capitalize() if roles.kind(name) == "icoll" and "_i" not in name else name

    @property
    def waits(self) -> bool:
        return roles.kind(self.function) in roles.WAITS

    def own(self) -> int:
        """Which argument is its object; -1: none."""
        found = (at for at, one in enumerate(self.parameters) if one.kind == self.family and one.by != "array")
        return -1 if self.of_class else next(found, -1)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return signatures()[self.function].parameters

    def reads(self, one: Parameter) -> bool:
        """Whether the call reads the handles that this points to."""
        ending = self.function.endswith(("_free", "_get_status_all", "_get_status_any", "_get_status_some"))
        if self.function in ("Mrecv", "Imrecv"):
            return one.kind == "message"
        return one.kind in KINDS and (one.const or ending or self.waits or self.function in READING)


def rows(method: Method) -> tuple[str, str]:
    """The lines before a call, and those after it: with `at` the place of its note, and `result` what it returns."""
    lines, known = _messages(method)
    values = [_value(method, at, one, known) for at, one in enumerate(method.parameters)]
    layout = letters(method.function)
    size, joined = 8 * len(values) + 24, "".join(value + ", " for value in values)
    before = [f"({at + 1}, {_handles(method, at, one)})" for at, one in enumerate(method.parameters)
              if one.by != "value" and method.reads(one)]  # fmt: skip
    mine = len(before) == 1 and "[self.handle]" in before[0]
    if mine and {*values} <= {"ABSENT", "NO_HANDLE", "self.handle"}:  # both rows at once: nothing here can be odd
        lines += [
            f"end = notes._more_at = (begin := notes._more_at) + {size + 48}",  # (4) of `record`
            "if end > (more := notes._more).end: room_(end)",
            f"note_ = (at - {HEADER}) // {NOTE}",
            f"{PACKS}{layout}_{BOTH_ROWS}(more.map, begin, {len(values)}, note_, {ARGUMENTS}, {joined}"
            f"3, note_, {BEFORE}, {method.own() + 1}, 1, self.handle)",
        ]
        return "\n".join(lines), "\n".join(_after(method))
    lines += [  # in line: a function that does it would take as long again
        f"end = notes._more_at = (begin := notes._more_at) + {size}",  # (4) of `record`
        "if end > (more := notes._more).end: room_(end)",
        "try:",
        f"    {PACKS}{layout}(more.map, begin, {len(values)}, (at - {HEADER}) // {NOTE}, {ARGUMENTS}, {joined})",
        "except Exception:",
        f"    carefully_(begin, at, {layout!r}, ({joined}))",
    ]
    if mine:
        lines.append(f"one_(at, {BEFORE}, {method.own() + 1}, self.handle)")
    elif len(before) == 1 and "handles_(" in before[0]:
        lines.append(f"reads_(at, {BEFORE}, {before[0][1:]}")
    elif before:
        lines.append(f"several_handles_(at, {BEFORE}, {', '.join(before)})")
    return "\n".join(lines), "\n".join(_after(method))


def letters(function: str) -> str:
    """How its arguments are packed: a handle has no sign."""
    parameters = signatures()[function].parameters
    return "".join("Q" if one.kind in KINDS and one.by == "value" else "q" for one in parameters)


def _value(method: Method, at: int, one: Parameter, known: dict[str, str]) -> str:
    absent = "NO_HANDLE" if one.kind in KINDS and one.by == "value" else "ABSENT"
    if one.by != "value" or one.kind in ("status", "text", "other"):
        return absent
    if at == method.own():
        return "self.handle"
    if one.name in known:
        return known[one.name]
    found = [word for word in (one.name, *OTHERWISE.get(one.name, ())) if word.split()[-1] in method.words]
    if one.kind in KINDS:
        word = next((word for word in found if " " in word), found[0]) if found else ""
        fast = f"{word}.handle if type({word}) is Op else handle_({word})" if word == "op" else f"handle_({word})"
        return f"({fast})" if word else absent
    if one.kind == "buffer":
        return absent
    of = [word for word in LENGTHS.get(one.name, ()) if word in method.words]
    return found[0] if found else f"length_({of[0]})" if of else absent


def _handles(method: Method, at: int, one: Parameter) -> str:
    if at == method.own():
        return "[self.handle]"
    if one.name in ARRAYS and ARRAYS[one.name] in method.words:
        return f"handles_({ARRAYS[one.name]})"
    return {"sendtypes": "types_(sendbuf)[1]", "recvtypes": "types_(recvbuf)[1]"}.get(one.name, "()")


def _messages(method: Method) -> tuple[list[str], dict[str, str]]:
    """Lines that read its buffers, and which of their names is which argument."""
    words, base = method.words, method.base
    if method.pickled:
        return [], dict(PICKLED)
    if base in COLLECTIVE:
        return quick.both(base, f"{BOTH} = {COLLECTIVE[base]}"), OF_BOTH
    if "origin" in words:
        return _one_sided(method)
    if base in ("Alltoallw", "Neighbor_alltoallw"):
        return [f"{SENT} = types_(sendbuf)[0]", f"{RECEIVED} = types_(recvbuf)[0]"], OF_BOTH
    if "inoutbuf" in words:
        return [f"{SENT} = simple_(inbuf)", f"{RECEIVED} = simple_(inoutbuf)"], OF_BOTH
    if "sendbuf" in words and "recvbuf" in words:
        return [*quick.one("s", "sendbuf", "dest"), *quick.one("r", "recvbuf", "source")], OF_BOTH
    memory = next((word for word in ("memory", "location") if word in words), "buf" if "_attach" in base else "")
    if memory in words:
        return [], {name: f"{reader}({memory})" for name, reader in MEMORY.items()}
    if "buf" in words:
        return _one(method), OF_ONE
    return [], {}


def _one(method: Method) -> list[str]:
    words = method.words
    if method.function in ("Mrecv", "Imrecv"):
        return [f"{RECEIVED} = matched_(self, buf)"]
    if "dest" in words and "source" in words:
        return [f"{RECEIVED} = simple_(buf, dest if source == PROC_NULL else source, 1)"]
    side = next((word for word in ("dest", "source", "root") if word in words), "")
    if "partitions" in words:
        return [f"{RECEIVED} = simple_(buf, {side or 0}, partitions)"]
    return quick.one("r", "buf", side)


def _one_sided(method: Method) -> tuple[list[str], dict[str, str]]:
    lines, known = [f"{SENT} = simple_(origin, target_rank)"], OF_ORIGIN | OF_RESULT
    if "result" in method.words:
        lines.append(f"{RECEIVED} = simple_(result, target_rank)")
    if "compare" in method.words:
        lines.append("ca = simple_(compare, target_rank)[0]")
        known = known | {"compare_addr": "ca"}
    if "target" in method.words:
        lines.append(f"({SENT}), (td, tn, tt) = target_((sa, sn, st), origin, target_rank, target)")
        known = known | OF_TARGET
    return lines, known


def _after(method: Method) -> Iterator[str]:
    function, result = method.function, "result"
    written = [(at + 1, one.kind in KINDS) for at, one in enumerate(method.parameters)
               if one.by == "pointer" and not one.const and not method.reads(one)
               and one.kind in {*KINDS, "int", "rank", "tag"}]  # fmt: skip
    if method.pickled and method.waits:
        result = "result[:2]" if function == "Testany" else "result[0]"
    if function in UNTOLD or not written:
        return
    kept = method.parameters[written[0][0] - 1].kind in ("request", "message")
    if function.endswith("_get_attr"):
        yield f"one_(at, {AFTER}, {written[0][0]}, result is not None)"
    elif function.endswith("some"):
        yield f"some_(at, {written[0][0]}, {result})"
    elif function == "Improbe":
        yield "if result is not None: made_[result.handle] = result._noted"
        yield f"one_(at, {AFTER}, 4, 0) if result is None else several_(at, {tuple(written)}, (1, result))"
    elif len(written) == 1 and kept:  # another object may be made of this handle
        yield "new = result.handle"
        yield "made_[new] = result._noted"
        yield f"one_(at, {AFTER}, {written[0][0]}, new)"
    elif len(written) == 1 and not method.waits and not written[0][1]:
        one = f"one_(at, {AFTER}, {written[0][0]}, {result})"
        yield f"{one} if type({result}) in (bool, int) else several_(at, {tuple(written)}, {result})"
    elif len(written) == 1 and (written[0][1] or method.waits):
        yield f"one_(at, {AFTER}, {written[0][0]}, {result}{'.handle' * written[0][1]})"
    else:
        if method.parameters[written[-1][0] - 1].kind == "request":
            yield "made_[opened.handle] = what"
        yield f"several_(at, {tuple(written)}, {result})"
