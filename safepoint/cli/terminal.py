"""What people see: sizes, ages, tables, progress and questions. rich is imported only when it draws."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from safepoint.disk import Disk
from safepoint.errors import UsageError

DISK = Disk()
END = "\x04"
UNLIMITED = 10_000  # columns, where nobody has said how wide the output may be: in a pipe no line is broken

directory = click.argument(
    "directory", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False, path_type=str)
)
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, and nothing else there.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def printable(text: str) -> str:
    """Any text so that a terminal shows it and does not obey it: names of files may hold anything."""
    with suppress(UnicodeEncodeError):  # half a character of UTF-16, which is no name of a file
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def say(text: str = "") -> None:
    click.echo(printable(text))


def prose(text: str, indent: str = "") -> None:
    """A sentence, or several lines of them, wrapped where the terminal ends; what follows the first is indented."""
    for line in printable(text).split("\n"):
        click.echo(textwrap.fill(
            line, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ))  # fmt: skip


def put(content: dict[str, Any]) -> None:
    """The one JSON object of a command with --json."""
    click.echo(json.dumps(_finite(content), indent=1))


def _finite(value: Any) -> Any:
    """JSON has no NaN, and no infinity: null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table without lines, so that it can be read by eye, and by awk; `right`: the columns to be set flush right."""
    from rich.console import Console

    to = Console(width=width(), highlight=False, markup=False, emoji=False)
    with to.capture() as captured:
        to.print(drawn(heads, rows, right))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def drawn(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> Any:
    """That table, for rich."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold", no_wrap=False)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def live() -> bool:
    """Whether what is on the screen can be drawn anew."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def console() -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """What waits so many seconds for a key, and tells which; "": none; END: the terminal is gone. Without a terminal to
    read from it only waits."""

    def waited(seconds: float) -> str:
        time.sleep(seconds)
        return ""

    try:
        import select
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin)
    except (ImportError, OSError, ValueError):  # Windows; a pipe; closed
        yield waited
        return

    def pressed(seconds: float) -> str:
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return ""
        return sys.stdin.read(1) or END  # the terminal is gone

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if that is a terminal; what it gives takes the bytes read since the last call."""
    if not sys.stderr.isatty() or not total:
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


@contextmanager
def tidy() -> Iterator[None]:
    """SIGTERM ends what is done here as Ctrl-C does: nothing temporary is left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees. Raises `UsageError` where there is nobody to ask."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is here to answer: give --yes if so; nothing was changed")
    return click.confirm(printable(question), err=True)
