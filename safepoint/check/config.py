"""`.safepoint-check`: what `safepoint check` is to do here, so that nobody types it again. Lines `name = value`; every
one may be left out, and the command line wins.
"""

from __future__ import annotations

import difflib
import os
import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path

from safepoint.c import others_may_write
from safepoint.errors import UsageError

NAME = ".safepoint-check"
MOST = 1 << 20  # bytes


@dataclass
class Config:
    """What the file says."""

    command: tuple[str, ...] = ()  # the program, with its launcher or, if `ranks` is given, without
    ranks: int = 0  # then `mpiexec -n RANKS` is put before the command
    nodes: tuple[str, ...] = ()  # on which the ranks run: mpiexec is told of them
    port: int = -1  # where followers of other nodes are listened for, 0: any; -1: only if there may be some
    build: str = ""  # a command of the shell, run if one of `sources` is newer than the program
    sources: tuple[str, ...] = ()  # patterns
    mpicc: str = ""  # the compiler of the MPI that the program is linked with
    templates: tuple[str, ...] = ()  # names, files and directories, as -t has them
    directory: str = ""  # where the trace is while the program runs, and the report: on a file system that nodes share
    hang: float = 30.0  # seconds; 0: never
    lines: dict[str, int] = field(default_factory=dict)  # where each was said


def read(directory: Path) -> Config:
    """Of the file in this directory; of none, all as it is without. Raises `UsageError` with file and line."""
    path = directory / NAME
    try:
        if why := others_may_write(os.path.realpath(path)) if path.exists() else "":
            raise UsageError(
                f"{path} is not read, as it says which programs are run here: {why}. If it is right, make it yours: "
                f"cp {NAME} {NAME}.mine && chmod go-w {NAME}.mine && mv -f {NAME}.mine {NAME}"
            )
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if len(data) > MOST:
        raise UsageError(f"{path} is larger than {MOST} bytes")
    return parse(data, str(path))


def parse(data: bytes, path: str = NAME) -> Config:
    """Raises `UsageError`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: this is no UTF-8") from error
    config = Config()
    known = [one.name for one in fields(Config) if one.name != "lines"]
    for number, row in enumerate(text.splitlines(), 1):
        words = row.strip()
        if not words or words.startswith("#"):
            continue
        name, sign, value = (word.strip() for word in words.partition("="))
        at = f"{path}:{number}:"
        if not sign:
            raise UsageError(f"{at} a line is `name = value`, and this is {words!r}")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise UsageError(f"{at} there is no {name!r}{f'; {near[0]}?' if near else ''} Known: {', '.join(known)}")
        if name in config.lines:
            raise UsageError(f"{at} {name} is said in line {config.lines[name]} already")
        if not value:
            raise UsageError(f"{at} {name} has no value")
        config.lines[name] = number
        setattr(config, name, _value(name, value, at))
    for name, other in (("sources", "build"), ("build", "sources"), ("ranks", "command")):
        if name in config.lines and other not in config.lines:
            raise UsageError(f"{path}:{config.lines[name]}: {name} needs {other} too")
    return config


def _value(name: str, text: str, at: str) -> object:
    if name in ("command", "sources", "templates"):
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"{at} {name}: {error}") from error
    if name == "ranks":
        if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 1_000_000:
            raise UsageError(f"{at} ranks takes a whole number from 1")
        return int(text)
    if name == "hang":
        return seconds(text, at)
    if name == "nodes":
        return hosts(text, at)
    if name == "port":
        return port(text, at)
    return text


def seconds(text: str, at: str) -> float:
    """Raises `UsageError`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise UsageError(f"{at} hang takes seconds, or 0 for never")
    return value


def hosts(text: str, at: str) -> tuple[str, ...]:
    """Names, with blanks or commas between. Raises `UsageError`."""
    found = tuple(text.replace(",", " ").split())
    wrong = next((name for name in found if name.startswith("-") or not name.isprintable()), "")
    if wrong or len(set(found)) < len(found) or not found:
        raise UsageError(f"{at} nodes takes names of hosts, each once{f', and {wrong!r} is none' if wrong else ''}")
    return found


def port(text: str, at: str) -> int:
    """Raises `UsageError`."""
    if not text.isascii() or not text.isdecimal() or not int(text) < 1 << 16:
        raise UsageError(f"{at} port takes a number up to 65535, or 0 for any")
    return int(text)


def program(config: Config) -> tuple[str, ...]:
    """The command that is started."""
    return ("mpiexec", "-n", str(config.ranks), *config.command) if config.ranks else config.command


def outdated(config: Config, program: str, directory: Path) -> str:
    """The source that is newer than the program, or why it has to be built; "": it need not. Raises `UsageError`."""
    found = [path for pattern in config.sources for path in directory.glob(pattern)]
    if not found:
        raise UsageError(f"{directory / NAME}:{config.lines['sources']}: no file is like {' '.join(config.sources)}")
    try:
        made = os.stat(directory / program).st_mtime_ns
    except FileNotFoundError:
        return f"there is no {program}"
    newest = max(found, key=lambda path: path.stat().st_mtime_ns)
    return f"{newest} is newer than {program}" if newest.stat().st_mtime_ns > made else ""
