"""Lines of a wrapper that read arrays of numpy, without a call of ours: a call of a function takes as long as what it
does. All else is read by `specs`, and what is odd too. Names in the source: see `shapes` and `arguments`.

An array is its class and nothing else: no method of a class of the program's own is called.
"""

from __future__ import annotations

# Not contiguous, or of a type that was not seen yet; or on a communicator of which nothing is known.
ODD = "(KeyError, BufferError, ValueError, TypeError, ZeroDivisionError)"
SELF = " and root == c.rank and 'remote' not in c.line"
# Of collective calls: when arrays are what they seem, and among how many what is sent and received is divided.
EACH = " // len(c.peers)"
DIVIDED = {
    "Gather": (SELF, "", EACH), "Scatter": (SELF, EACH, ""), "Allgather": ("", "", EACH), "Alltoall": ("", EACH, EACH),
    "Reduce": (SELF, "", ""), "Allreduce": ("", "", ""), "Scan": ("", "", ""), "Exscan": ("", "", ""),
    "Reduce_scatter": ("", "", ""), "Reduce_scatter_block": ("", EACH, ""),
}  # fmt: skip
REDUCING = "Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter", "Reduce_scatter_block"


def one(of: str, buffer: str, side: str) -> list[str]:
    """Of one buffer: to `sa, sn, st` or `ra, rn, rt`. `side`: the parameter that is the other rank; "": there is none.
    Nothing is sent to PROC_NULL."""
    address, names, there = f"{of}a", f"{of}a, {of}n, {of}t", f" and {side} != PROC_NULL" if side else ""
    room = "room" if buffer != "recvbuf" else "_"
    return [
        f"{address} = {room} = None",
        f"if type({buffer}) is array_{there}:",
        "    try:",
        f"        {names} = buffer_({buffer}).address, {buffer}.size, kinds_[id({buffer}.dtype)]",
        f"        {room} = {buffer}.nbytes",
        f"    except {ODD}: {address} = None",
        f"if {address} is None: {names} = simple_({buffer}, {side or 0}, 1)",
    ]


def both(base: str, slowly: str) -> list[str]:
    """Of what a collective call sends and receives. `slowly`: how all else is read. One array that is both is what
    MPI_IN_PLACE is to a reduction."""
    if base not in DIVIDED:
        return [slowly]
    holds, sent, received = DIVIDED[base]
    same = " or sa == ra" if base in REDUCING else ""
    return [
        "sa = room = None",
        f"if type(sendbuf) is type(recvbuf) is array_{holds}:",
        "    try:",
        "        sa, ra, kind = buffer_(sendbuf).address, buffer_(recvbuf).address, sendbuf.dtype",
        "        st = kinds_[id(kind)]",
        "        rt = st if recvbuf.dtype is kind else kinds_[id(recvbuf.dtype)]",
        f"        sn, rn, room = sendbuf.size{sent}, recvbuf.size{received}, sendbuf.nbytes",
        f"    except {ODD}: sa = None",
        f"if sa is None{same}: {slowly}",
    ]
