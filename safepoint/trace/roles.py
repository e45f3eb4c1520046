"""What each function of MPI does to messages, requests and communicators, and which of its arguments says so.

The names are those of the standard without `MPI_`; large counts (`MPI_Send_c`) are the same functions. The arguments
are those of the C binding, by position. What is not in the table is noted as another call, and judged as if it did
nothing: a test finds the functions of an MPI library and of mpi4py that are missing here.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

OTHER = "other"
LOCAL = "local"  # touches nothing of others: noted only if somebody asks for it


class Role(NamedTuple):
    """A function. `arguments`: of each argument its part in it, `-` if it has none."""

    name: str
    kind: str
    arguments: tuple[str, ...]

    def at(self, part: str) -> int | None:
        return self.arguments.index(part) if part in self.arguments else None


# kind: functions: parts of the arguments. What the kinds mean to requests and messages is in `match`.
TABLE = """
send: Send Bsend Ssend Rsend: buf count type dest tag comm
isend: Isend Ibsend Issend Irsend: buf count type dest tag comm request
send_init: Send_init Bsend_init Ssend_init Rsend_init: buf count type dest tag comm request
recv: Recv: buf count type source tag comm status
irecv: Irecv: buf count type source tag comm request
recv_init: Recv_init: buf count type source tag comm request
sendrecv: Sendrecv: buf count type dest tag - - - source recvtag comm status
sendrecv: Sendrecv_replace: buf count type dest tag source recvtag comm status
isendrecv: Isendrecv: buf count type dest tag - - - source recvtag comm request
isendrecv: Isendrecv_replace: buf count type dest tag source recvtag comm request
probe: Probe: source tag comm status
iprobe: Iprobe: source tag comm flag status
mprobe: Mprobe: source tag comm message status
improbe: Improbe: source tag comm flag message status
mrecv: Mrecv: buf count type message status
imrecv: Imrecv: buf count type message request
send_init: Psend_init: buf - count type dest tag comm - request
recv_init: Precv_init: buf - count type source tag comm - request

start: Start: request
startall: Startall: n requests
wait: Wait: request status
waitall: Waitall: n requests statuses
waitany: Waitany: n requests index status
waitsome: Waitsome: n requests outcount indices statuses
test: Test: request flag status
testall: Testall: n requests flag statuses
testany: Testany: n requests index flag status
testsome: Testsome: n requests outcount indices statuses
cancel: Cancel: request
request_free: Request_free: request
look: Request_get_status: request flag status
look: Request_get_status_all: n requests flag statuses
look: Request_get_status_any: n requests index flag status
look: Request_get_status_some: n requests outcount indices statuses
local: Pready Parrived Pready_list Pready_range Test_cancelled Grequest_start Grequest_complete:

coll: Barrier: comm
coll: Bcast: buf count type root comm
coll: Gather Scatter: buf count type - - - root comm
coll: Gatherv: buf count type - - - - root comm
coll: Scatterv: buf - - type - - - root comm
coll: Allgather Alltoall: buf count type - - - comm
coll: Allgatherv: buf count type - - - - comm
coll: Alltoallv Alltoallw: buf - - - - - - - comm
coll: Reduce: buf - count type op root comm
coll: Allreduce Scan Exscan Reduce_scatter_block: buf - count type op comm
coll: Reduce_scatter: buf - - type op comm
coll: Neighbor_allgather Neighbor_alltoall: buf count type - - - comm
coll: Neighbor_allgatherv: buf count type - - - - comm
coll: Neighbor_alltoallv Neighbor_alltoallw: buf - - - - - - - comm
icoll: Ibarrier: comm request
icoll: Ibcast: buf count type root comm request
icoll: Igather Iscatter: buf count type - - - root comm request
icoll: Igatherv: buf count type - - - - root comm request
icoll: Iscatterv: buf - - type - - - root comm request
icoll: Iallgather Ialltoall: buf count type - - - comm request
icoll: Iallgatherv: buf count type - - - - comm request
icoll: Ialltoallv Ialltoallw: buf - - - - - - - comm request
icoll: Ireduce: buf - count type op root comm request
icoll: Iallreduce Iscan Iexscan Ireduce_scatter_block: buf - count type op comm request
icoll: Ireduce_scatter: buf - - type op comm request
icoll: Ineighbor_allgather Ineighbor_alltoall: buf count type - - - comm request
icoll: Ineighbor_allgatherv: buf count type - - - - comm request
icoll: Ineighbor_alltoallv Ineighbor_alltoallw: buf - - - - - - - comm request
coll_init: Barrier_init: comm - request
coll_init: Bcast_init: buf count type root comm - request
coll_init: Gather_init Scatter_init: buf count type - - - root comm - request
coll_init: Gatherv_init: buf count type - - - - root comm - request
coll_init: Scatterv_init: buf - - type - - - root comm - request
coll_init: Allgather_init Alltoall_init: buf count type - - - comm - request
coll_init: Allgatherv_init: buf count type - - - - comm - request
coll_init: Alltoallv_init Alltoallw_init: buf - - - - - - - comm - request
coll_init: Reduce_init: buf - count type op root comm - request
coll_init: Allreduce_init Scan_init Exscan_init Reduce_scatter_block_init: buf - count type op comm - request
coll_init: Reduce_scatter_init: buf - - type op comm - request
coll_init: Neighbor_allgather_init Neighbor_alltoall_init: buf count type - - - comm - request
coll_init: Neighbor_allgatherv_init: buf count type - - - - comm - request
coll_init: Neighbor_alltoallv_init Neighbor_alltoallw_init: buf - - - - - - - comm - request

comm_new: Comm_dup: comm newcomm
comm_new: Comm_dup_with_info: comm - newcomm
comm_new: Comm_split: comm - - newcomm
comm_new: Comm_split_type: comm - - - newcomm
comm_new: Comm_create: comm - newcomm
comm_new: Cart_create: comm - - - - newcomm
comm_new: Cart_sub: comm - newcomm
comm_new: Graph_create: comm - - - - newcomm
comm_new: Dist_graph_create: comm - - - - - - - newcomm
comm_new: Dist_graph_create_adjacent: comm - - - - - - - - newcomm
comm_new: Intercomm_merge: comm - newcomm
icomm_new: Comm_idup: comm newcomm request
icomm_new: Comm_idup_with_info: comm - newcomm request
comm_of_group: Comm_create_group: comm - - newcomm
comm_of_group: Comm_create_from_group: - - - - newcomm
comm_of_group: Intercomm_create_from_groups: - - - - - - - newcomm
comm_of_group: Intercomm_create: comm - - - - newcomm
comm_free: Comm_free Comm_disconnect: comm
outside: Comm_spawn: - - - - root comm newcomm -
outside: Comm_spawn_multiple: - - - - - root comm newcomm -
outside: Comm_accept Comm_connect: - - root comm newcomm
outside: Comm_join: - newcomm
outside: Comm_get_parent: newcomm
coll: Comm_agree: comm -
icoll: Comm_iagree: comm - request
outside: Comm_shrink: comm newcomm
look: Comm_ishrink: comm - request
look: Comm_revoke: comm

win_new: Win_create: - - - - comm win
win_new: Win_create_dynamic: - comm win
win_new: Win_allocate Win_allocate_shared: - - - comm - win
win_free: Win_free: win
win_coll: Win_fence: - win
put: Put Get: buf count type target - - - win
put: Accumulate: buf count type target - - - op win
put: Get_accumulate: buf count type - - - target - - - op win
put: Fetch_and_op: buf - type target - op win
put: Compare_and_swap: buf - - type target - win
iput: Rput Rget: buf count type target - - - win request
iput: Raccumulate: buf count type target - - - op win request
iput: Rget_accumulate: buf count type - - - target - - - op win request
win_open: Win_lock: - target - win
win_close: Win_unlock: target win
win_open: Win_lock_all: - win
win_close: Win_unlock_all: win
win_open: Win_start: - - win
win_close: Win_complete: win
win_expose: Win_post: - - win
win_exposed: Win_wait: win
win_exposed: Win_test: win flag
win_flush: Win_flush Win_flush_local: target win
win_flush: Win_flush_all Win_flush_local_all Win_sync: win

file_new: File_open: comm - - - file
file_free: File_close: file
file_coll: File_set_view File_set_size File_preallocate File_set_atomicity File_set_info: file
file_coll: File_seek_shared File_sync: file
file_coll: File_read_all File_write_all File_read_ordered File_write_ordered: file buf count type status
file_coll: File_read_at_all File_write_at_all: file - buf count type status
file_coll: File_read_all_begin File_write_all_begin: file buf count type
file_coll: File_read_ordered_begin File_write_ordered_begin: file buf count type
file_coll: File_read_at_all_begin File_write_at_all_begin: file - buf count type
file_coll: File_read_all_end File_write_all_end File_read_at_all_end File_write_at_all_end: file buf status
file_coll: File_read_ordered_end File_write_ordered_end: file buf status
file_icoll: File_iread_all File_iwrite_all: file buf count type request
file_icoll: File_iread_at_all File_iwrite_at_all: file - buf count type request
file_io: File_read File_write File_read_shared File_write_shared: file buf count type status
file_io: File_read_at File_write_at: file - buf count type status
file_iio: File_iread File_iwrite File_iread_shared File_iwrite_shared: file buf count type request
file_iio: File_iread_at File_iwrite_at: file - buf count type request

type_new: Type_contiguous: - type newtype
type_new: Type_vector Type_create_hvector Type_hvector: - - - type newtype
type_new: Type_indexed Type_create_hindexed Type_hindexed: - - - type newtype
type_new: Type_create_indexed_block Type_create_hindexed_block: - - - type newtype
type_new: Type_create_struct Type_struct: - - - - newtype
type_new: Type_dup: type newtype
type_new: Type_create_resized: type - - newtype
type_new: Type_create_subarray: - - - - - type newtype
type_new: Type_create_darray: - - - - - - - - type newtype
type_new: Type_create_f90_integer: - newtype
type_new: Type_create_f90_real Type_create_f90_complex: - - newtype
type_commit: Type_commit: type
type_free: Type_free: type
group_new: Comm_group Comm_remote_group Win_get_group File_get_group: - newgroup
group_new: Group_incl Group_excl Group_range_incl Group_range_excl: - - - newgroup
group_new: Group_union Group_intersection Group_difference: - - newgroup
group_new: Group_from_session_pset: - - newgroup
group_free: Group_free: group
op_new: Op_create: - - newop
op_free: Op_free: op

init: Init: - -
init: Init_thread: - - - -
finalize: Finalize:
abort: Abort: comm -
"""

# What only asks, or changes this process alone. A name that ends in `*` is that of many.
LOCALS = """
Comm_rank Comm_size Comm_remote_size Comm_compare Comm_test_inter Comm_get_* Comm_set_* Comm_attach_buffer
Comm_detach_buffer Comm_flush_buffer Comm_iflush_buffer Comm_create_keyval Comm_free_keyval Comm_delete_attr
Comm_create_errhandler Comm_call_errhandler Comm_failure_* Comm_ack_failed Comm_is_revoked Comm_toint Comm_fromint
Topo_test Cart_* Cartdim_get Graph_* Graphdims_get Dist_graph_neighbors* Dims_create Keyval_* Attr_*
Group_* Type_* Op_* Info_* Errhandler_* Error_* Add_error_* Remove_error_* Status_* Get_* Win_get_* Win_set_* Win_attach
Win_detach Win_create_keyval Win_free_keyval Win_delete_attr Win_create_errhandler Win_call_errhandler
Win_shared_query Win_toint Win_fromint File_get_* File_seek File_delete File_set_errhandler File_create_errhandler
File_call_errhandler File_toint File_fromint Request_toint Request_fromint Message_toint Message_fromint Session_*
Buffer_* Pack* Unpack* Register_datarep* Alloc_mem Free_mem Aint_* Address Wtime Wtick Initialized Finalized
Query_thread Is_thread_main Pcontrol T_* Open_port Close_port Publish_name Unpublish_name Lookup_name Reduce_local Aint
Sizeof Request_c2f Request_f2c Message_c2f Message_f2c Win_c2f Win_f2c
Comm_c2f Comm_f2c File_c2f File_f2c Abi_* Comm_shift Comm_cart_map Comm_graph_map Comm_is_inter Comm_is_intra
Win_tomemory Message_free Request_complete
"""


def _table() -> dict[str, Role]:
    found: dict[str, Role] = {}
    for line in TABLE.strip().splitlines():
        if line:
            kind, functions, arguments = line.split(":")
            for name in functions.split():
                assert name not in found, name
                found[name] = Role(name, kind, tuple(arguments.split()))
    return found


ROLES = _table()
NUMBERS = {name: number for number, name in enumerate(ROLES, 16)}  # of functions; below 16 is our own
HIDE, MARK, RESTORE, FINISH = 1, 2, 3, 4
OURS = {HIDE: "hide", MARK: "mark", RESTORE: "restore", FINISH: "finish"}
VERBS = "hide", "restore", "finish"  # in which ranks wait for each other
FIRST_OTHER = 1024  # numbers of functions that are not in the table begin here, in the order of each tracer
_LOCALS = LOCALS.split()


# Of each send that MPI may buffer: the one that ends only when its receive has begun.
SYNCHRONOUS = {"Send": "Ssend", "Isend": "Issend", "Send_init": "Ssend_init"}
WAITS = "wait", "waitall", "waitany", "waitsome", "test", "testall", "testany", "testsome"


def numbers(*kinds: str) -> frozenset[int]:
    """Of the functions of these kinds."""
    return frozenset(NUMBERS[name] for name, role in ROLES.items() if role.kind in kinds)


@functools.cache
def kind(name: str) -> str:
    """Of any function of the standard, `OTHER` if it is unknown."""
    if name in ROLES:
        return ROLES[name].kind
    if any(name == local or (local.endswith("*") and name.startswith(local[:-1])) for local in _LOCALS):
        return LOCAL
    return OTHER


def functions(others: dict[int, str]) -> dict[str, list[str]]:
    """What lies in `functions.json`: number → name and kind. `others`: numbers that this tracer gave itself."""
    known = {NUMBERS[name]: [name, role.kind] for name, role in ROLES.items()}
    ours = {number: [name, "ours"] for number, name in OURS.items()}
    return {
        str(number): row
        for number, row in (ours | known | {n: [name, kind(name)] for n, name in others.items()}).items()
    }


# Names of mpi4py that are not the standard's with its class before them.
OF_MPI4PY = {
    "Create_cart": "Cart_create",
    "Create_graph": "Graph_create",
    "Create_dist_graph": "Dist_graph_create",
    "Create_dist_graph_adjacent": "Dist_graph_create_adjacent",
    "Create_intercomm": "Intercomm_create",
    "Create_from_groups": "Intercomm_create_from_groups",
    "Merge": "Intercomm_merge",
    "Sub": "Cart_sub",
    "Clone": "Comm_dup",
    "Join": "Comm_join",
}
CLASSES = {
    **dict.fromkeys(("Comm", "Intracomm", "Topocomm", "Cartcomm", "Graphcomm", "Distgraphcomm", "Intercomm"), "Comm"),
    **dict.fromkeys(("Request", "Prequest", "Grequest"), "Request"),
    "Message": "Message",
    "Win": "Win",
    "File": "File",
}
OF_MESSAGES = {"Probe": "Mprobe", "Iprobe": "Improbe", "Recv": "Mrecv", "Irecv": "Imrecv"}


def of_method(cls: str, method: str) -> tuple[str, bool]:
    """The function of the standard that a method of mpi4py is, and whether it sends its objects pickled."""
    pickled = method[0].islower()
    name = method[0].upper() + method[1:]
    family = CLASSES[cls]
    if family == "Message":
        return OF_MESSAGES.get(name, f"Message_{method}"), pickled
    if (family, method) == ("File", "free"):
        return "File_close", False
    if family == "Comm" and name in OF_MPI4PY:
        return OF_MPI4PY[name], pickled
    if family in ("Comm", "Request") and name in ROLES:
        return name, pickled
    if family == "Win" and name in ROLES and ROLES[name].kind in ("put", "iput"):
        return name, pickled
    return f"{family}_{method[0].lower()}{method[1:]}", pickled and method != "free"
