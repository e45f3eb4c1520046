"""`safepoint tasks show` and `safepoint tasks why`: what is kept, and what would run again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.tasks import places
from safepoint.cli.tasks.states import Past, State
from safepoint.errors import NothingSavedError
from safepoint.tasks import Graph, identity
from safepoint.tasks.planning import FOUND, Plan

ORDER = ("failed", "running", "skipped", "waiting", "finished")


@click.command()
@places.directory
@click.option("--state", type=click.Choice(ORDER), help="Only vertices in this state.")
@terminal.as_json
def show(directory: str, state: str | None, as_json: bool) -> None:
    """The vertices of the last graph: state, seconds, bytes, worker, attempts.

    States: finished, failed, skipped (it needs one that failed), running, waiting. It takes no lock, and may be used
    while a run is at work.
    """
    past = Past(places.store_of(directory))
    states = [each for each in past.states.values() if state in (None, each.state)]
    if as_json:
        terminal.put({
            "directory": os.path.realpath(directory), "graph": past.graph["graph"] if past.graph else None,
            "running": past.running, "unused": past.unused, "vertices": [_as_json(each) for each in states],
        })  # fmt: skip
        return
    terminal.table(
        ["vertex", "state", "time", "bytes", "worker", "attempts"], [_row(each) for each in states],
        right=("time", "bytes", "attempts"),
    )  # fmt: skip
    counts = [(sum(each.state == kind for each in past.states.values()), kind) for kind in ORDER[::-1]]
    total = words.count(len(past.states), "vertex", "vertices")
    terminal.say(f"{total}: {', '.join(f'{count} {kind}' for count, kind in counts if count) or 'none'}")
    if past.unused:
        of = words.count(past.unused, "result")
        terminal.say(f"{of} of other graphs or of earlier versions: safepoint tasks clean removes them")


def _as_json(state: State) -> dict[str, Any]:
    record, failed = state.record, state.failed if state.state == "failed" else {}
    return {
        "name": state.name, "state": state.state, "seconds": record.seconds if record else None,
        "bytes": record.nbytes if record else None, "kept": record.kept if record else None,
        "worker": record.worker if record else failed.get("worker"), "attempts": state.attempts,
        "host": record.host if record else failed.get("host"), "time": record.time if record else None,
        "key": record.key if record else None, "outputs": [each.name for each in record.outputs] if record else [],
        "error": failed.get("error"), "where": failed.get("where"), "needs": state.needs or None,
    }  # fmt: skip


def _row(state: State) -> list[str]:
    record = state.record
    shown = state.state + (f" (needs {state.needs})" if state.needs else "")
    if record is None:
        return [state.name, shown, "", "", str(state.failed.get("worker") or ""), str(state.attempts or "")]
    nbytes = words.size(record.nbytes) + ("" if record.kept else " (digest only)")
    return [
        state.name,
        shown,
        words.precise(record.seconds),
        nbytes,
        f"{record.worker}, {record.host}",
        str(state.attempts),
    ]


@click.command()
@click.argument("name")
@places.directory
@click.option(
    "--graph", "file", type=click.Path(exists=True, dir_okay=False), metavar="FILE.toml",
    help="Compare with the graph as it is in this file now; without it, with the one that ran last.",
)  # fmt: skip
def why(name: str, directory: str, file: str | None) -> None:
    """Why a vertex would run again, or why it failed.

    It compares what the identity of a vertex is made of (its function, version, parameters, and the bytes of its
    inputs) with what is kept of the vertex of that NAME. Of a graph that a program builds it knows what that was at its
    last run.
    """
    past = Past(places.store_of(directory))
    state = past.states.get(name)
    if file is not None:
        lines = _compared(past, name, file)
    elif state is not None:
        lines = _as_of_last_run(past, state)
    elif name in past.by_name:
        lines = [f"{name} is no vertex of the last graph; {_made(past.by_name[name][-1])}"]
    else:
        raise NothingSavedError(f"no vertex {name} has run in {os.path.realpath(directory)}, and none is to run")
    for line in lines:
        terminal.prose(line, "    ")


def _made(record: Any) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    text = f"made {words.moment(record.time)} by {record.worker} on {record.host} in {words.precise(record.seconds)}"
    return text + (f", with {versions}" if versions else "")


def _as_of_last_run(past: Past, state: State) -> list[str]:
    if state.record is not None:
        return _of_finished(past, state)
    changed = f"but its function has changed since ({state.row.get('source')})"
    changed = changed if _function_now(past, state.row.get("parts"), state.row) else ""
    if state.state == "failed":
        where = f", {state.failed['where']}" if state.failed.get("where") else ""
        text = f"{state.name} failed at its last run: {state.failed.get('error')}{where}"
        trace = state.failed.get("traceback")
        return [text, *(trace.rstrip().splitlines() if isinstance(trace, str) else ()), *filter(None, [changed])]
    if state.state == "skipped":
        return [f"{state.name} was not run: it needs {state.needs}, which failed"]
    if state.state == "running":
        return [f"{state.name} is at work now"]
    return [_again(state.name, _changes(past, state.name, state.row.get("parts") or {}, state))]


def _of_finished(past: Past, state: State) -> list[str]:
    assert state.record is not None
    last = f"its last result: {_made(state.record)}"
    if _function_now(past, state.record.parts, state.row):
        return [f"{state.name} would run again: its function changed since ({state.record.source})", last]
    if above := _above(past, state):
        return [f"{state.name} may run again: input {above} would run again, and may come out different", last]
    kept = "" if state.record.kept else "; only its digest is kept, so it runs again if a vertex needs it"
    return [f"{state.name} has finished and would not run again: {_made(state.record)}{kept}"]


def _above(past: Past, state: State) -> str:
    """The nearest vertex above this one that would run again; "" if none would."""
    ahead, seen = [state], {state.name}
    while ahead:
        inputs = [pair[0] for each in ahead for pair in each.row.get("inputs", ())]
        ahead = [past.states[name] for name in dict.fromkeys(inputs) if name in past.states and name not in seen]
        seen.update(each.name for each in ahead)
        for each in ahead:
            if each.record is None or _function_now(past, each.record.parts, each.row):
                return each.name
    return ""


def _function_now(past: Past, parts: Mapping[str, str] | None, row: Mapping[str, Any]) -> bool:
    """Whether the source of the function is not what it was; of a graph that a program builds."""
    from safepoint.cli.tasks.source import digest_now

    work = os.path.dirname(os.path.dirname(past.store.directory))
    now = digest_now(os.path.join(work, row.get("file", "")), row.get("function", "").partition(":")[2])
    return bool(now) and parts is not None and now != parts.get("function", now)


def _again(name: str, why: str) -> str:
    return f"{name} would run again: {why}" if why else f"{name} has not run yet"


def _changes(past: Past, name: str, parts: dict[str, str], state: State | None) -> str:
    """Why it would run again; "": it has never begun."""
    source = state.row.get("source", "") if state else ""
    records = past.by_name.get(name)
    if records:
        said = identity.differs(records[-1].parts, parts) if parts else []
        said = [f"{each} ({source})" if each == "its function changed" and source else each for each in said]
        return ", ".join(said) or "an input of it must run again first, and may come out different"
    events = _events(past, name)
    return "forgotten" if "finished" in events else "never finished" if events else ""


def _events(past: Past, name: str) -> set[str]:
    """Of all runs, whether their results are kept or not."""
    from safepoint.tasks import log

    return {row["event"] for row in log.rows(past.store.directory) if row.get("vertex") == name}


def _compared(past: Past, name: str, file: str) -> list[str]:
    graph = Graph.read(file)
    plan = Plan(graph, past.records.get, lambda record: record.kept)
    if name not in plan.number:
        raise NothingSavedError(f"{file} has no vertex {name}")
    n = plan.number[name]
    record = plan.record[n]
    if plan.state[n] == FOUND and record is not None:
        kept = "" if record.kept else "; only its digest is kept, and nothing needs it now"
        return [f"{name} has finished and would not run again: {_made(record)}{kept}"]
    if record is not None:
        return [f"{name} would run again: only its digest is kept, or its bytes are lost, and a vertex needs them"]
    digests = plan.digests(n)
    parts, vertex = plan.parts[n], plan.vertices[n]
    state = State(name, "waiting", row={"source": vertex.source})
    if digests is not None:
        return [_again(name, _changes(past, name, identity.noted(parts, vertex, digests), state))]
    first = next(plan.vertices[p].name for p in plan.parents[n] if plan.record[p] is None)
    records = past.by_name.get(name)
    own = (
        identity.differs({k: v for k, v in records[-1].parts.items() if not k.startswith("input ")}, parts)
        if records
        else []
    )
    return [f"{name} would run again: {', '.join([*own, f'input {first} must run again, and may come out different'])}"]
