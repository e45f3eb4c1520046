"""Which calls the tracer is to note, and where: what templates name, and what is needed to understand it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safepoint.check.files import read_json
from safepoint.check.messages import RECEIVED, SENT
from safepoint.check.template import EVERY, Argument, Template
from safepoint.trace import record, roles
from safepoint.trace.signatures import signatures

# What makes, completes and frees is always noted: what a handle means is not known without it.
MAKES = (
    "comm_new", "icomm_new", "comm_of_group", "comm_free", "outside", "win_new", "win_free", "file_new", "file_free",
    "type_new", "type_free", "op_new", "op_free", "group_new", "group_free", "init", "finalize",
)  # fmt: skip
OPENS = "isend", "irecv", "isendrecv", "send_init", "recv_init", "imrecv", "icoll", "coll_init", "iput", "icomm_new"
COMPLETES = (*roles.WAITS, "start", "startall", "cancel", "request_free", "mprobe", "improbe")
REQUESTS = (*OPENS, *COMPLETES)
COLLECTIVE = "coll", "icoll", "coll_init", "comm_new", "icomm_new", "comm_free", "win_new", "win_free", "file_new"
MESSAGES = {
    SENT: ("send", "isend", "sendrecv", "isendrecv", "send_init", *COMPLETES),
    RECEIVED: ("recv", "irecv", "sendrecv", "isendrecv", "recv_init", "mrecv", "imrecv", *COMPLETES),
}
BLOCKS = (  # where a program may hang, and whom it then waits for
    "send", "recv", "sendrecv", "probe", "mprobe", "mrecv", "coll", "comm_new", "comm_of_group", "comm_free", "win_new",
    "win_free", "win_coll", "win_open", "win_close", "win_exposed", "win_flush", "file_new", "file_coll", *REQUESTS,
)  # fmt: skip
Watched = dict[str, set[int] | None]  # function → ranks of the world; None: all


def of_kinds(kinds: Iterable[str]) -> list[str]:
    """The functions of these kinds."""
    wanted = set(kinds)
    return [name for name in {**roles.ROLES, **signatures()} if roles.kind(name) in wanted]


def watched(templates: Iterable[Template], hang: bool) -> Watched:
    """`hang`: a program that stands still is to be told where, with or without templates."""
    found: Watched = {}
    for name in of_kinds((*MAKES, *(BLOCKS if hang else ()))):
        found[name] = None
    if hang:
        found["hide"] = None
    for template in templates:
        _of_template(found, template)
    return found


def _of_template(found: Watched, template: Template) -> None:
    items = [item for one in template.functions.values() for row in one for item in row]
    for item in items:
        rank = template.bound.get(item.process) if item.process != EVERY else None
        for name in item.functions:
            for function in of_kinds(MESSAGES[name]) if name in MESSAGES else (name,):
                _add(found, function, None if rank is None or name in MESSAGES else {rank})
    kinds = {roles.kind(name) for item in items for name in item.functions}
    if kinds & {*REQUESTS}:
        for name in of_kinds(REQUESTS):
            _add(found, name, None)
    if any(_names(side, "match") for condition in template.conditions for side in (condition.left, condition.right)):
        for name in of_kinds(COLLECTIVE):
            _add(found, name, None)


def _names(side: object, attribute: str) -> bool:
    return isinstance(side, Argument) and side.name == attribute


def _add(found: Watched, name: str, ranks: set[int] | None) -> None:
    """All ranks win over some."""
    known = found.get(name, set())
    found[name] = None if ranks is None or known is None else known | ranks


def text(watching: Watched, sync_sends: bool = False) -> dict[str, Any]:
    """What lies in `watch.json`. `sync_sends`: the tracers call the synchronous form of each send."""
    if sync_sends:
        watching = {**watching, **dict.fromkeys(roles.SYNCHRONOUS)}
    functions = {name: None if ranks is None else sorted(ranks) for name, ranks in sorted(watching.items())}
    return {"functions": functions, **({"sync_sends": True} if sync_sends else {})}


def makes_synchronous(directory: Path) -> bool:
    """Whether the sends of this trace were made synchronous. Raises `TraceError`."""
    path = directory / record.WATCH
    return path.exists() and bool(read_json(path).get("sync_sends"))
