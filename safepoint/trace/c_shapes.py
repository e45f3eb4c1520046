"""What the wrapper of a function in C does, by the kind that the table of roles gives it."""

from __future__ import annotations

import re
from typing import NamedTuple

from safepoint.trace import roles
from safepoint.trace.mpi_h import Prototype


class Shape(NamedTuple):
    """What the wrapper of a kind does, in C: before the call, after it, and if it has failed. Names in braces are the
    parts of the arguments (`roles`); one that a function does not have is `ABSENT`."""

    before: str = ""
    after: str = ""
    failed: str = ""


ABSENT = {
    "buf": "NULL",
    "count": "-1",
    "type": "MPI_DATATYPE_NULL",
    "root": "NO_ROOT",
    "comm": "MPI_COMM_NULL",
}
SENDS = "sends(&c, {count}, {type}, {dest}, {tag}, {comm});"
TAKES = "takes(&c, {source}, {tag}, {comm}); size_of(&c, {count}, {type});"
PROBES = "takes(&c, {source}, {tag}, {comm}); looks(&c, {status}, 1);"
MESSAGE = "takes_message(&c, {count}, {type}, {message});"
FAILS, SEND_FAILS = "fails();", "send_fails(code_);"
FAILED = "waits_failed(&c, {requests}); " + FAILS
GONE = "wait_failed(&c, {request} && *{request} == MPI_REQUEST_NULL); " + FAILS
COLLECTIVE = "collective(&c, {counts}, {buf}, {count}, {type}, {root}, {comm});"
OPENED = "opened(&c, {request}, nothing());"
SEVERAL = "waits_for(&c, {n}, {requests}, {statuses}, 0);"
SINGLE = "waits_for(&c, {n}, {requests}, {status}, 1);"
SOME = "waited_for(&c, *{outcount} > 0 ? *{outcount} : 0, {indices}, 0, %d);"
NEW = "new_comm(&c, *{newcomm}, 0);"
ON_WIN = "on_win(&c, {win});"
PUT = ON_WIN + " c.note->peer = {peer}; if ({used}) size_of(&c, {count}, {type});"
AT = ON_WIN + " c.note->peer = {peer};"
FILE_IO = "on_file(&c, {file}); if ({buffer}) size_of(&c, {count}, {type});"
SHAPES = {
    "send": Shape(SENDS, "sent(&c);", SEND_FAILS),
    "isend": Shape(SENDS, "sent(&c); opened(&c, {request}, c.sends);", SEND_FAILS),
    "send_init": Shape(SENDS, "kept(&c, {request}, c.sends);"),
    "recv": Shape(TAKES + " looks(&c, {status}, c.takes.wild);", "received(&c);", FAILS),
    "irecv": Shape(TAKES, "opened(&c, {request}, c.takes);"),
    "recv_init": Shape(TAKES, "kept(&c, {request}, c.takes);"),
    "sendrecv": Shape(SENDS + " also_takes(&c, {source}, {recvtag}); looks(&c, {status}, c.takes.wild);",
                      "sent(&c); received(&c);", FAILS),
    "isendrecv": Shape(SENDS + " also_takes(&c, {source}, {recvtag});", "sent(&c); opened(&c, {request}, c.takes);",
                       FAILS),
    "probe": Shape(PROBES, "probed(&c);"),
    "iprobe": Shape(PROBES, "if (*{flag}) probed(&c);"),
    "mprobe": Shape(PROBES, "matched(&c, *{message});"),
    "improbe": Shape(PROBES, "if (*{flag}) matched(&c, *{message});"),
    "mrecv": Shape(MESSAGE, "c.status = NULL; received(&c); message_gone(&c);", "message_gone(&c); " + FAILS),
    "imrecv": Shape(MESSAGE, "takes_later(&c, {request});"),
    "start": Shape(after="starts(&c, 1, {request}, 1);", failed=FAILS),
    "startall": Shape(after="starts(&c, {n}, {requests}, 0);", failed=FAILS),
    "wait": Shape("waits(&c, {request}, {status});", "waited(&c, 1, 0);", GONE),
    "test": Shape("waits(&c, {request}, {status});", "waited(&c, *{flag}, 1);", GONE),
    "waitall": Shape(SEVERAL, "waited_for(&c, {n}, NULL, 0, 0);", FAILED),
    "testall": Shape(SEVERAL, "waited_for(&c, *{flag} ? {n} : 0, NULL, 0, 1);", FAILED),
    "waitany": Shape(SINGLE, "waited_for(&c, *{index} != MPI_UNDEFINED, {index}, 1, 0);", FAILED),
    "testany": Shape(SINGLE, "waited_for(&c, *{flag} && *{index} != MPI_UNDEFINED, {index}, 1, 1);", FAILED),
    "waitsome": Shape(SEVERAL, SOME % 0, FAILED),
    "testsome": Shape(SEVERAL, SOME % 1, FAILED),
    "cancel": Shape("cancels(&c, {request});"),
    "request_free": Shape("frees(&c, {request});", "wait_failed(&c, 1);", "wait_failed(&c, 0);"),
    "coll": Shape(COLLECTIVE),
    "icoll": Shape(COLLECTIVE, OPENED),
    "coll_init": Shape(COLLECTIVE, "kept(&c, {request}, nothing());"),
    "comm_new": Shape("on_comm(&c, {comm});", NEW),
    "icomm_new": Shape("on_comm(&c, {comm});", "new_comm(&c, *{newcomm}, 1); " + OPENED),
    "comm_of_group": Shape("on_comm(&c, {comm});", NEW),
    "outside": Shape("on_comm(&c, {comm});", NEW),
    "comm_free": Shape("on_comm(&c, {comm} ? *{comm} : MPI_COMM_NULL); forgets(&c, COMM);",
                       "forgotten(&c, COMM, 0);", "forgotten(&c, COMM, 1);"),
    "win_new": Shape("on_comm(&c, {comm});", "new_win(&c, *{win});"),
    "win_free": Shape("on_win(&c, {win} ? *{win} : MPI_WIN_NULL); forgets(&c, WIN);",
                      "forgotten(&c, WIN, 0);", "forgotten(&c, WIN, 1);"),
    "win_coll": Shape(ON_WIN, "fenced(&c);"),
    "put": Shape(PUT, "puts_in(&c);"),
    "iput": Shape(PUT, "puts_in(&c); " + OPENED),
    "win_open": Shape(AT, "epoch(&c, 1);"),
    "win_close": Shape(AT, "epoch(&c, -1);"),
    "win_expose": Shape(ON_WIN, "epoch(&c, 1);"),
    "win_exposed": Shape(ON_WIN, "if ({ended}) exposed(&c, {found});"),
    "win_flush": Shape(AT),
    "file_new": Shape("on_comm(&c, {comm});", "new_file(&c, *{file});"),
    "file_free": Shape("on_file(&c, {file} ? *{file} : MPI_FILE_NULL); forgets(&c, MPIFILE);",
                       "forgotten(&c, MPIFILE, 0);", "forgotten(&c, MPIFILE, 1);"),
    "file_coll": Shape(FILE_IO),
    "file_icoll": Shape(FILE_IO, OPENED),
    "file_io": Shape(FILE_IO),
    "file_iio": Shape(FILE_IO, OPENED),
    "look": Shape(),
    "other": Shape(),
    "abort": Shape("on_comm(&c, {comm});"),
    "finalize": Shape(),
}  # fmt: skip
TELLS = {  # kinds that may pass on a status of ours
    "recv", "sendrecv", "probe", "iprobe", "mprobe", "improbe", "wait", "test", "waitall", "testall", "waitany",
    "testany", "waitsome", "testsome",
}  # fmt: skip


def parts_of(prototype: Prototype) -> dict[str, str]:
    """What stands for the names in braces of its shape."""
    role = roles.ROLES.get(prototype.standard)
    given = {part: prototype.names[at] for at, part in enumerate(role.arguments) if part != "-"} if role else {}
    name = prototype.standard
    if "buf" not in given:
        counts = "NO_BUFFER"
    elif re.fullmatch("I?[Ss]catterv?(_init)?", name):
        counts = "AT_ROOT"
    elif re.fullmatch("I?[Gg]atherv?(_init)?", name):
        counts = "NOT_AT_ROOT"
    else:
        counts = "ALWAYS" if "op" in given or "root" in given else "NOT_IN_PLACE"
    return ABSENT | given | {
        "counts": counts, "buffer": "1" if "buf" in given else "0",
        "ended": f"*{given['flag']}" if "flag" in given else "1", "found": "FOUND" if "flag" in given else "0",
        "used": f"{given['op']} != MPI_NO_OP" if "op" in given else "1",
        "peer": f"rank_of({given['target']})" if "target" in given else "NONE",
    }  # fmt: skip
