"""`safepoint places`: where a program that was traced may save, and whether each `hide` is at such a place."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from safepoint.cli import terminal
from safepoint.errors import UsageError
from safepoint.pace.times import duration

NOT_LEGAL, UNDECIDED = 1, 2  # exit codes
MOST_SECONDS = 1e9
HEADS = ("where", "", "visits", "legal", "wait mean/p95", "interval", "")


def _moment(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < MOST_SECONDS:
        raise click.BadParameter("takes seconds since the trace began")
    return value


@click.command()
@click.argument("trace", metavar="TRACE", type=click.Path(exists=True, path_type=Path))
@click.option("--interval", default="", metavar="TIME", help="How often it is to save at most: every k-th visit then.")
@click.option(
    "--level", type=click.Choice(["message", "files", "strict"]), default="files",
    help="message: no message under way; files: no request open either (the default); strict: nothing left to chance.",
)  # fmt: skip
@click.option("--at", default="", metavar="FILE:LINE", help="Judge this line alone.")
@click.option("--html", default="", metavar="PAGE", help="Where the picture goes. Default: places.html in TRACE")
@click.option("--picture", default="", metavar="FILE.svg", help="The diagram alone, for papers.")
@click.option("--from", "begin", type=float, callback=_moment, metavar="SECONDS", help="Draw from here …")
@click.option("--to", "end", type=float, callback=_moment, metavar="SECONDS", help="… to here.")
@click.option("--cut", type=float, callback=_moment, metavar="SECONDS", help="The legal place nearest to this time.")
@click.option("--against", type=click.Path(exists=True, path_type=Path), metavar="TRACE2",
              help="Compare the calls with those of another run, and name the first difference.")  # fmt: skip
@terminal.as_json
@click.pass_context
def places(
    ctx: click.Context, trace: Path, interval: str, level: str, at: str, html: str, picture: str,
    begin: float | None, end: float | None, cut: float | None, against: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Where may the program that left TRACE call `hide`, so that a restart loses no message and doubles none?

    For each `hide`, each mark and the top of each loop with calls in several lines it is said at how many of its
    visits that is so, and which message stands in the way. A page with the picture is written beside. Exit code 0: each
    hide is legal (there is none: some line is, at every visit); 1: not so; 2: it cannot be told, and why.
    """
    try:
        wanted = duration(interval) * 1e9 if interval else 0.0
    except ValueError as error:
        raise UsageError(f"--interval {interval}: {error}") from error
    if begin is not None and end is not None and begin >= end:
        raise UsageError(f"--from {begin:g} --to {end:g}: there is nothing between")
    judge = _Judge()
    matched = judge.read(trace)
    found = judge.told.tell(matched, level, wanted, at)
    if at and not found.judgement.lines:
        raise UsageError(f"--at {at}: no call of the trace is at this line")
    more = judge.asked.differences(found, judge.read(against), against.name) if against else []
    if cut is not None:
        more.append(judge.asked.cut_near(found, cut))
    page = Path(html) if html else (trace if trace.is_dir() else trace.parent) / "places.html"
    if not as_json:
        _say(judge, found, more)
    failure = _draw(judge, found, (page, picture), trace.name, (begin, end))
    if as_json:
        page_there = None if failure else terminal.printable(str(page))
        terminal.put(
            {"trace": terminal.printable(str(trace)), **judge.plain.as_json(found), "asked": more, "page": page_there}
        )
    elif failure is None:
        terminal.say(f"picture: {page}")
    if failure is not None:
        raise failure
    ctx.exit(0 if found.good else NOT_LEGAL if found.decided else UNDECIDED)


def _say(judge: _Judge, found: Any, more: list[str]) -> None:
    terminal.prose(judge.told.head(found))
    for remark in found.matched.remarks:
        terminal.prose(remark)
    if not found.judgement.lines:
        terminal.prose("there is no hide, no mark and no call in this trace that could be judged")
        return
    terminal.table(HEADS, judge.told.rows(found), right=("visits", "legal", "wait mean/p95", "interval"))
    for line in [*judge.told.blockers(found), *judge.asked.doubts(found), judge.asked.needed(found), *more]:
        if line:
            terminal.prose(line, indent="  ")


def _draw(judge: _Judge, found: Any, to: tuple[Path, str], name: str, window: tuple[Any, Any]) -> OSError | None:
    """Write the page, and the diagram alone if that was asked for. What the trace is, is said in any case."""
    page, picture = to
    drawn = judge.told.drawn(found)
    try:
        _write(page, judge.picture.page(found.matched, drawn, name, *window))
        if picture:
            _write(Path(picture), judge.picture.svg(found.matched, drawn, *window))
    except OSError as error:
        return error
    return None


def _write(path: Path, text: str) -> None:
    """In the place of what is there: a trace of somebody else may have a link of this name to a file of mine."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        beside.write_text(text, "utf-8")
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


class _Judge:
    """What needs numpy and scipy, loaded when it is needed."""

    def __init__(self) -> None:
        """Raises `UsageError` that says what to install."""
        try:
            self.told, self.asked, self.plain, self.picture = (
                importlib.import_module(f"safepoint.places.{name}") for name in ("told", "asked", "plain", "picture")
            )
            self._match = importlib.import_module("safepoint.matching.match")
        except ModuleNotFoundError as error:
            raise UsageError(
                f"{error.name} is missing: pip install '.[places]' in the directory of safepoint's source"
            ) from error

    def read(self, trace: Path) -> Any:
        """A trace, matched. One that cannot be judged ends the command."""
        from safepoint.matching.reading import TraceError

        try:
            with terminal.tidy():
                return self._match.matched(trace)
        except (TraceError, MemoryError) as error:
            said = terminal.printable(str(error) or f"{trace}: there is not enough memory for it")
            click.echo(f"safepoint: {said}", err=True)
            sys.exit(UNDECIDED)
