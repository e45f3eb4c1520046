"""`safepoint init`: a first manifest, proposed from what changed last below the directory."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import click

from safepoint import companions, words
from safepoint.cli import terminal
from safepoint.disk.files import exists, listdir, write
from safepoint.errors import UsageError
from safepoint.manifest import parse
from safepoint.patterns import NAME, escaped, quoted
from safepoint.root import Root

DISK = terminal.DISK
RECENT_S = 86400.0  # seconds before the newest change: what is older than this is no output of the last run
MANY = 20  # proposals
COMPRESS_FROM_BYTES = 100 << 20  # bytes from which compression is proposed
DEEP, LIMIT = 3, 20_000  # directories below DIR, and files, that are looked at
ALIKE = 4  # files of one ending in a directory, from which a glob is proposed
STORES = (".zarr", ".n5", ".bp", ".tiledb")  # directories that are one data set
SAMPLE = 4096  # bytes at the beginning of a file that tell what it is
DATABASE = b"SQLite format 3\0"
SOURCES = frozenset({
    ".a", ".bak", ".c", ".cc", ".cfg", ".cmake", ".cpp", ".cxx", ".dll", ".exe", ".f", ".f03", ".f08", ".f90", ".f95",
    ".for", ".go", ".h", ".hpp", ".html", ".in", ".ini", ".ipynb", ".java", ".jl", ".lock", ".m", ".md", ".mk", ".mod",
    ".o", ".pdf", ".py", ".pyc", ".r", ".rs", ".rst", ".sh", ".so", ".swp", ".tex", ".tmp", ".toml", ".yaml", ".yml",
})  # fmt: skip
NOT_DATA = {"makefile", "readme", "license", "dockerfile", "cmakelists.txt", "requirements.txt"}
SKIP = {"__pycache__", "node_modules", "venv", "env", "build", "dist", "src", "site-packages", "test", "tests", "docs"}

HEAD = """\
# The files that make a save point, one per line, relative to this directory. Check what is proposed here.
#
#     u.npy                       moved away by hide, at once; the program writes a new one
#     fields/*.vtk   compress     kept compressed (or compress=9)
#     history.csv    append       only ever grows: cut back to its length at the save point
#     params.db      copy         changed in place, held open, or not written each time: a snapshot instead of a move
#     notes.txt      optional     may be absent
#     part-{rank}.h5              one file of each rank
#     run.zarr/                   a whole directory
"""
TAIL = """
# keep = 2                        # how many complete sets stay
"""


class Found(NamedTuple):
    """A file or directory that may be output of the program."""

    path: str
    size: int
    time: float
    tree: bool = False
    format: str = ""  # of a database that keeps files beside it


@click.command()
@terminal.directory
@click.option("--force", is_flag=True, help="Replace a manifest that is there.")
@click.option("--print", "show", is_flag=True, help="Write it to stdout, not to .safepoint.")
@terminal.as_json
def init(directory: str, force: bool, show: bool, as_json: bool) -> None:
    """Write a first manifest, from the files that changed last.

    The entries are proposals, from what lies there now, and say so: read them before the first run. Whether a program
    writes a file anew, or adds to it, nobody can tell from that: safepoint crash-test does.
    """
    work = os.path.realpath(directory)
    path = os.path.join(work, NAME)
    if exists(DISK, path) and not force and not show:
        raise UsageError(f"{path} is there already (--force replaces it); nothing was changed")
    proposals = propose(_alone(work, list(_files(work))), work)
    if not proposals and not show:
        kept = "; the manifest stays" if exists(DISK, path) else ""
        raise UsageError(f"no file below {work} looks like data: run the program once, or to its first files{kept}")
    text = HEAD + "\n" + ("\n".join(proposals) if proposals else "# (no file here looks like data yet)") + "\n" + TAIL
    if proposals:
        parse(text, path)  # what we propose must be a manifest
    if exists(DISK, path) and not show:
        write(DISK, f"{path}.new", os.fsencode(text))
        DISK.rename(f"{path}.new", path)
    elif not show:
        write(DISK, path, os.fsencode(text))
    if as_json:
        terminal.put({"path": None if show else path, "text": text, "proposals": len(proposals)})
    elif show:
        click.echo(os.fsencode(text), nl=False)
    else:
        terminal.say(f"wrote {path}: {words.count(len(proposals), 'proposal')}, to be checked")


def propose(found: list[Found], work: str = "") -> list[str]:
    """Lines of a manifest for what changed last, newest first."""
    newest = max((each.time for each in found), default=0.0)
    recent = sorted((f for f in found if f.time > newest - RECENT_S), key=lambda f: (-f.time, f.path))
    groups: dict[tuple[str, str], list[Found]] = {}
    for each in recent:
        groups.setdefault((os.path.dirname(each.path), os.path.splitext(each.path)[1]), []).append(each)
    lines, done = [], set()
    for each in recent:
        key = os.path.dirname(each.path), os.path.splitext(each.path)[1]
        alike = groups[key]
        if key in done:
            continue
        if len(alike) >= ALIKE and key[1] and not each.tree:
            done.add(key)
            lines.append(_line(os.path.join(escaped(key[0]), f"*{escaped(key[1])}"), alike))
        else:
            lines.append(_line(escaped(each.path) + "/" * each.tree, [each], _stays(work, each)))
    rest = len(lines) - MANY
    return lines[:MANY] + [f"# and {rest} more files that changed in the last run"] * (rest > 0)


def _stays(work: str, file: Found) -> str:
    """Why a file had better stay in place: a program that adds rows to it, or changes it, would begin it anew when it
    has been moved away. Its name tells nothing of that."""
    path = os.path.join(work, file.path)
    if file.tree or not work:
        return ""
    with suppress(OSError):
        if DISK.open_for_writing([path]):
            return ", as a program has it open"
    with suppress(OSError), DISK.open(path) as opened:
        begin = opened.read(SAMPLE)
        if begin.startswith(DATABASE):
            return ", as a database is changed in place"
        if b"\n" in begin and b"\0" not in begin:
            return ", as rows may be added (append, if only that; no attribute, if written anew for each set)"
    return ""


def _line(name: str, files: list[Found], stays: str = "") -> str:
    """One proposal, with a comment that says why."""
    total, newest = sum(f.size for f in files), max(f.time for f in files)
    attribute, guess = "", ""
    if files[0].format:
        attribute, guess = "copy", f", with what {files[0].format} keeps beside it"
    elif stays:
        attribute, guess = "copy", stays
    elif max(f.size for f in files) >= COMPRESS_FROM_BYTES:
        attribute, guess = "compress", ", as it is large"
    what = "" if len(files) == 1 else f"{len(files)} files, "
    seen = f"{what}{words.size(total)}, {words.age(newest)}"
    return f"{quoted(name):<28} {attribute:<9} # proposed{guess}: {seen}"


def _alone(work: str, found: list[Found]) -> list[Found]:
    """Without what belongs to another file, and is saved with that."""
    root = Root(work, disk=DISK)
    known = [each._replace(format="" if each.tree else companions.format_of(root, each.path)) for each in found]
    others = {each.path for each in companions.beside(root, [each.path for each in known if each.format])}
    return [each for each in known if each.path not in others]


def _files(work: str) -> Iterator[Found]:
    """What may be data below W: nothing hidden, no sources, nothing in huge trees."""
    waiting, seen = [""], 0
    while waiting and seen < LIMIT:
        below = waiting.pop(0)
        try:
            names = listdir(DISK, os.path.join(work, below))
        except OSError:  # not ours to read: nothing to propose
            continue
        for name in names[:LIMIT]:
            seen += 1
            path = f"{below}/{name}" if below else name
            try:
                info = DISK.stat(os.path.join(work, path))
            except OSError:  # gone
                continue
            if name.startswith(".") or name.endswith("~") or name.lower() in NOT_DATA:
                continue
            if stat.S_ISDIR(info.st_mode):
                if name.endswith(STORES):
                    yield _tree(work, path, info)
                elif name.lower() not in SKIP and path.count("/") < DEEP:
                    waiting.append(path)
            elif stat.S_ISREG(info.st_mode) and _is_data(name, info):
                yield Found(path, info.st_size, info.st_mtime)


def _tree(work: str, path: str, info: os.stat_result) -> Found:
    total, newest, seen = 0, info.st_mtime, 0
    for top, _, names in os.walk(os.path.join(work, path)):
        for name in names:
            try:
                each = os.lstat(os.path.join(top, name))
            except OSError:  # gone
                continue
            total, newest, seen = total + each.st_size, max(newest, each.st_mtime), seen + 1
        if seen > LIMIT:
            break
    return Found(path, total, newest, True)


def _is_data(name: str, info: os.stat_result) -> bool:
    executable = info.st_mode & stat.S_IXUSR
    return os.path.splitext(name)[1].lower() not in SOURCES and not executable and info.st_mtime <= time.time() + 60
