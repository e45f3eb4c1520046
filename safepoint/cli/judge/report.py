"""`safepoint report`: how a run went, over all its restarts, from the logs that it left.

Nothing of the run is changed, and it may still be running. `ledger.history` reads the logs, `report` makes the page.
"""

from __future__ import annotations

import os
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.errors import SaveError
from safepoint.ledger import history
from safepoint.ledger.lives import ENDINGS, Life, Part, Run, Save
from safepoint.report.advice import Advice, advise
from safepoint.report.page import headline, page
from safepoint.session import __version__

DEFAULT = "safepoint-report.html"


@click.command()
@terminal.directory
@click.option("-o", "output", default="", metavar="FILE", help="Where the page goes; - is the standard output. Without "
              f"this and --json it is {DEFAULT}.")  # fmt: skip
@terminal.as_json
def report(directory: str, output: str, as_json: bool) -> None:
    """How the run in DIR went, over all its restarts, as a page for the browser.

    When it computed, when it waited, what was lost and computed again, how large the sets were, and how often it should
    have saved. The page is one file that loads nothing. The run is only looked at; it may be going on.
    """
    run = history.read(terminal.DISK, os.path.realpath(directory))
    advice = advised(run)
    if as_json:
        terminal.put(numbers(run, advice))
    if output or not as_json:
        made = page(run, advice, __version__)
        if output == "-":
            click.echo(made, nl=False)
        else:
            write(output or DEFAULT, made.encode())
            click.echo(terminal.printable(f"{output or DEFAULT}: {' '.join(headline(run))}"), err=as_json)


def write(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise SaveError(f"report not written: {path}: {error.strerror}; the run is as it was", error.errno) from error


def advised(run: Run) -> Advice | None:
    """None: the log does not say what a set cost."""
    cost = run.cost
    return advise(cost, run.failures, run.alive) if cost and run.alive else None


def numbers(run: Run, advice: Advice | None) -> dict[str, Any]:
    """All that the page shows, for programs. Names of times end in `_s`: seconds."""
    saves = [save for save in run.saves if not save.error]
    known = [save for save in run.saves if save.slowest]
    slow = max(known, key=lambda save: save.slowest or (0.0, 0), default=None)
    return {
        "directory": run.work,
        "state": run.state,
        "reached_step": run.last.reached,
        "starts": sum(life.how != "roll-back" for life in run.lives),
        "roll_backs": sum(life.how == "roll-back" for life in run.lives),
        "ends": {kind: sum(life.ending == kind for life in run.lives) for kind in ENDINGS},
        "failures": run.failures,
        "ranks": run.ranks,
        "rank_of_time_line": run.rank,
        "wall_s": run.wall,
        "at_work_s": run.alive,
        "computing_s": sum(life.computing for life in run.lives),
        "blocked_s": sum(life.blocked for life in run.lives),
        "restoring_s": sum(life.restoring for life in run.lives),
        "lost_s": sum(life.lost for life in run.lives),
        "lost_unseen_estimate_s": sum(life.unseen for life in run.lives),
        "repeated_steps": sum(life.repeated for life in run.lives),
        "sets": {
            "saved": len(saves),
            "failed": len(run.saves) - len(saves),
            "bytes": sum(save.bytes for save in saves),
            "stored": sum(save.stored for save in saves),
            "storing_s": sum(save.seconds for save in saves),
            "slowest_blocked": slow and slow.slowest and {
                "set": slow.number, "step": slow.step, "rank": slow.slowest[1], "blocked_s": slow.slowest[0]
            },
            "all": [_of_save(save) for save in run.saves],
        },
        "by_rank": [_of_part(part) for part in run.parts],
        "interval": {"used_s": run.interval, **(_of_advice(advice) if advice else {})},
        "lives": [_of_life(life) for life in run.lives],
        "events": [vars(event) for event in run.events if event.event != "saved"],
        "unreadable_lines": run.torn,
        "clock_went_back_s": run.jumped,
    }  # fmt: skip


def _of_advice(advice: Advice) -> dict[str, Any]:
    low, high = advice.range
    finite = advice.mean is not None
    return {
        "cost_s": advice.cost,
        "mean_between_failures_s": advice.mean,
        "mean_between_failures_90_percent_s": [advice.low, advice.high if finite else None],
        "young_s": advice.young,
        "daly_s": advice.daly,
        "daly_90_percent_s": [low, high if finite else None],
    }


def _of_save(save: Save) -> dict[str, Any]:
    return {
        "set": save.number, "step": save.step, "at_s": save.at, "files": save.files, "bytes": save.bytes,
        "stored": save.stored, "disk_use": save.use, "storing_s": save.seconds, "blocked_s": save.blocked,
        "error": save.error,
    }  # fmt: skip


def _of_part(part: Part) -> dict[str, Any]:
    typical, longest = part.blocked or (None, None)
    return {
        "rank": part.rank, "sets": part.sets, "bytes": part.bytes, "storing_s": part.storing[0],
        "storing_longest_s": part.storing[1], "blocked_s": typical, "blocked_longest_s": longest,
    }  # fmt: skip


def _of_life(life: Life) -> dict[str, Any]:
    return {
        "how": life.how, "pid": life.pid, "begin_s": life.begin, "ready_s": life.ready, "end_s": life.end,
        "ending": life.ending, "error": life.error, "from_step": life.step, "from_set": life.set,
        "reached_step": life.reached, "computing_s": life.computing, "blocked_s": life.blocked, "lost_s": life.lost,
        "lost_unseen_estimate_s": life.unseen, "repeated_steps": life.repeated, "passed_over": life.passed_over,
    }  # fmt: skip
