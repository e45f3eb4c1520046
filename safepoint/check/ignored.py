"""Which arguments of a call MPI ignores: by the function, by the root, and beside MPI_IN_PLACE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safepoint.check.noted import ABSENT

if TYPE_CHECKING:
    from safepoint.check.arguments import Given

OF_SENDER = {"sendbuf", "sendcount", "sendtype", "sendcounts", "sendtypes", "displs", "sdispls"}
OF_RECEIVER = {"recvbuf", "recvcount", "recvtype", "recvcounts", "recvtypes", "displs", "rdispls"}


def base(function: str) -> str:
    """Of `Igatherv_init` the name `gatherv`: what blocks, what does not and what lasts are ignored in the same way."""
    name = function.removesuffix("_init")
    return (name[1:] if name[0] == "I" and name[1:2].islower() and name not in ("Init",) else name).lower()


def _at_root(given: Given) -> bool | None:
    """None: it has no root, or its communicator is not known."""
    at = given.what.at("root")
    if at is None or given.comm is None or not given.comm.peers:
        return None
    root = given.raw(at)
    if given.comm.inter:
        return root == given.handles.constants.get("MPI_ROOT")
    return root == given.comm.mine


def ignored(given: Given) -> frozenset[str]:
    """Names of arguments that MPI does not look at."""
    if given.signature is not None and given.function in ("Get_accumulate", "Rget_accumulate"):
        no_op = given.raw(given.what.at("op") or 0) == given.handles.constants.get("MPI_NO_OP", ABSENT)
        return frozenset({"origin_addr", "origin_count", "origin_datatype"} if no_op else ())
    if given.signature is None or given.kind not in ("coll", "icoll", "coll_init"):
        return frozenset()
    found, name, root = set[str](), base(given.function), _at_root(given)
    in_place = given.handles.constants.get("MPI_IN_PLACE", ABSENT)
    buffers = {one.name: given.raw(at) for at, one in enumerate(given.signature.parameters) if one.kind == "buffer"}
    if buffers.get("sendbuf") == in_place:
        found |= OF_SENDER & {"sendcount", "sendtype", "sendcounts", "sdispls", "sendtypes"}
    if buffers.get("recvbuf") == in_place:
        found |= {"recvcount", "recvtype"}
    if name in ("gather", "gatherv", "scatter", "scatterv", "reduce"):
        gone = OF_SENDER if name.startswith("scatter") else OF_RECEIVER
        inter = given.comm is not None and given.comm.inter
        if root is False or root is None:
            found |= gone
        if inter and root is True:
            found |= OF_RECEIVER if name.startswith("scatter") else OF_SENDER
    at = given.what.at("root")
    passive = at is not None and given.raw(at) == given.handles.constants.get("MPI_PROC_NULL")
    if passive and given.comm is not None and given.comm.inter:
        found |= {one.name for one in given.signature.parameters if one.name not in ("root", "comm")}
    return frozenset(found)
