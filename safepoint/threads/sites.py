"""The places of a program that events name: `sites.jsonl`, a line for each, in the directory of a run."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.errors import FormatError

FORMAT = 1


class Site(NamedTuple):
    """A place in the source. `name`: without the & of a scalar in C, whose address a digest has. `line2` is where it
    ends; `loose`: "reduction", "critical" or "atomic"; their values are not compared where they are written; of a
    region or a procedure "task": what tasks do in it is recorded in an order of chance."""

    number: int
    type: str
    name: str
    file: str
    line: int
    line2: int
    clauses: str = ""
    loose: str = ""
    private: bool = False
    procedure: str = ""


MOST = 256 << 20  # bytes


class Sites(NamedTuple):
    """The sites of one build. `build` is empty if the calls were written by hand."""

    build: str
    by_number: dict[int, Site]


def whole(path: Path) -> bytes:
    """A small file of a trace. Raises `OSError`, also of what is none: a pipe has no end, a hole fills the memory."""
    info = path.stat()
    if not stat.S_ISREG(info.st_mode) or info.st_size > MOST:
        raise OSError(errno.EFBIG, f"not a file of at most {MOST:,} bytes", str(path))
    return path.read_bytes()


def read(path: Path) -> Sites:
    """The sites in a file. A last line without its end was cut by a kill, and is left out. Raises `FormatError`."""
    try:
        text = whole(path).decode(errors="surrogateescape")
    except OSError as error:
        raise FormatError(f"cannot read the sites {path}: {error.strerror}", error.errno) from error
    rows = [_row(path, number, line) for number, line in enumerate(text.split("\n")[:-1], 1)]
    if not rows:
        return Sites("", {})
    if rows[0].get("format") != FORMAT:
        raise FormatError(f"{path}: its format is {rows[0].get('format')!r}, and this version reads {FORMAT}")
    found = [_site(path, line, row) for line, row in enumerate(rows[1:], 2)]
    return Sites(str(rows[0].get("build", "")), {site.number: site for site in found})


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}:{number}: not a line of JSON: {error}") from error
    if not isinstance(row, dict):
        raise FormatError(f"{path}:{number}: not an object of JSON")
    return row


def _site(path: Path, line: int, row: dict[str, Any]) -> Site:
    try:
        site = Site(**{name: row[name] for name in Site._fields if name in row})
        site = site._replace(name=site.name.lstrip("& ")) if site.type == "array" else site
    except (TypeError, AttributeError) as error:
        raise FormatError(f"{path}:{line}: a site without all of number, type, name, file, line, line2") from error
    numbers, texts = (site.number, site.line, site.line2), (site.type, site.name, site.file, site.clauses, site.loose)
    if not all(isinstance(each, int) for each in numbers) or not all(isinstance(each, str) for each in texts):
        raise FormatError(f"{path}:{line}: a site whose numbers or names are of another kind: {row}")
    return site
