"""Which function of the standard each method and function of mpi4py is: all of them, as any can be watched.

`roles.of_method` says it of what communicates. A method that calls no function, or several, is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from safepoint.trace.roles import CLASSES, of_method
from safepoint.trace.signatures import signatures

LOCAL_CLASSES = {
    "Datatype": "type", "Group": "group", "Op": "op", "Info": "info", "Errhandler": "errhandler",
    "Session": "session", "Status": "status",
}  # fmt: skip
KNOWN = {
    "Comm.Get_group": "Comm_group", "Comm.Get_rank": "Comm_rank", "Comm.Get_size": "Comm_size",
    "Comm.Get_topology": "Topo_test", "Comm.Is_inter": "Comm_test_inter", "Comm.Get_remote_group": "Comm_remote_group",
    "Comm.Get_remote_size": "Comm_remote_size", "Comm.Cart_map": "Cart_map", "Comm.Graph_map": "Graph_map",
    "Comm.Get_cart_rank": "Cart_rank", "Comm.Get_coords": "Cart_coords", "Comm.Get_dim": "Cartdim_get",
    "Comm.Shift": "Cart_shift", "Comm.Get_dims": "Graphdims_get", "Comm.Get_neighbors": "Graph_neighbors",
    "Comm.Get_neighbors_count": "Graph_neighbors_count", "Comm.Get_dist_neighbors": "Dist_graph_neighbors",
    "Comm.Get_dist_neighbors_count": "Dist_graph_neighbors_count", "Request.Complete": "Grequest_complete",
    "Type.Create_contiguous": "Type_contiguous", "Type.Create_dup": "Type_dup", "Type.Create_vector": "Type_vector",
    "Type.Create_indexed": "Type_indexed", "Type.Get_size": "Type_size", "Type.Resized": "Type_create_resized",
    "Type.Pack": "Pack", "Type.Unpack": "Unpack", "Type.Pack_size": "Pack_size",
    "Type.Pack_external": "Pack_external", "Type.Unpack_external": "Unpack_external",
    "Type.Pack_external_size": "Pack_external_size",
    "Group.Get_rank": "Group_rank", "Group.Get_size": "Group_size", "Group.Intersect": "Group_intersection",
    "Group.Dup": "Group_union", "Group.Create_from_session_pset": "Group_from_session_pset",
    "Session.Create_group": "Group_from_session_pset",
    "Op.Is_commutative": "Op_commutative", "Op.Reduce_local": "Reduce_local",
    "Status.Get_count": "Get_count", "Status.Get_elements": "Get_elements", "Status.Is_cancelled": "Test_cancelled",
    "Attach_buffer": "Buffer_attach", "Detach_buffer": "Buffer_detach", "Flush_buffer": "Buffer_flush",
    "Iflush_buffer": "Buffer_iflush", "Compute_dims": "Dims_create", "Is_initialized": "Initialized",
    "Is_finalized": "Finalized", "Get_error_class": "Error_class", "Get_error_string": "Error_string",
}  # fmt: skip
FAMILIES = {**CLASSES, "Datatype": "Type", **{name: name for name in LOCAL_CLASSES if name != "Datatype"}}
# `free` calls `Free` where there is something to free, and `Is_intra` says the contrary of what the function does.
NONE = {"free", "Is_intra", "fromcode", "tocode", "decode", "tomemory", "toint", "py2f"}


class Found(NamedTuple):
    name: str
    plain: Any  # what it is bound to, without its class
    function: str
    family: str  # the kind of its object, as `signatures` has it; "": of none
    of_class: bool
    pickled: bool


def of_class(name: str, cls: type) -> Iterator[Found]:
    """All methods of one of mpi4py's classes that are functions of the standard."""
    family = LOCAL_CLASSES.get(name) or CLASSES[name].lower()
    for method in dir(cls):
        plain = inspect.getattr_static(cls, method)
        is_class = isinstance(plain, classmethod)
        if method.startswith("_") or method in NONE or isinstance(plain, (type, staticmethod)):
            continue
        if is_class or callable(plain):
            function, pickled = _function(name, method)
            if function in signatures():
                yield Found(method, plain.__func__ if is_class else plain, function, family, is_class, pickled)


def _function(cls: str, method: str) -> tuple[str, bool]:
    known = KNOWN.get(f"{FAMILIES[cls]}.{method}", "")
    if method == "Get_topo":
        known = "Cart_get" if cls == "Cartcomm" else "Graph_get"
    if (cls, method) == ("Grequest", "Start"):
        known = "Grequest_start"
    if known:
        return known, False
    if cls in CLASSES:
        return of_method(cls, method)
    return f"{FAMILIES[cls]}_{method[0].lower()}{method[1:]}", False


def of_module(mpi: Any) -> Iterator[Found]:
    """All functions of the module that are."""
    for name in dir(mpi):
        function, plain = KNOWN.get(name, name), getattr(mpi, name)
        if function in signatures() and callable(plain) and not isinstance(plain, type):
            yield Found(name, plain, function, "", False, False)
