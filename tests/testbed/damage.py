"""What the next start of a program meets, in a directory that somebody has damaged or edited."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safepoint
from safepoint import SavePoint
from safepoint.disk.codec import checksum
from testbed.mounts import in_memory


@contextmanager
def room_above() -> Iterator[Path]:
    """A directory in memory, where there is such a place, with room above it for what a broken safepoint would write
    outside of it."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as directory:
        path = Path(directory).resolve() / "with/room/above"
        path.mkdir(parents=True)
        yield path


def write(work: Path, files: Mapping[str, bytes]) -> None:
    """The files of a step; a table only grows."""
    for name, data in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        grows = name == "history.csv" and path.exists()
        with path.open("ab" if grows else "wb") as file:
            file.write(data[path.stat().st_size :] if grows else data)


def contents(directory: Path, *, side: bool = False) -> dict[str, bytes | None]:
    """Every file of W with its bytes, every directory with None; the side directory too if asked for."""
    found: dict[str, bytes | None] = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if side or name.split("/")[0] != ".safepoint.d":
            found[name] = path.read_bytes() if path.is_file() else None
    return found


@dataclass
class Start:
    """What the next start of the program meets."""

    point: SavePoint | None
    error: BaseException | None
    warnings: list[str]

    @property
    def text(self) -> str:
        return str(self.error)


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def start(work: Path) -> Start:
    """`init` and `restore`; any exception is kept, to be judged."""
    seen = Warnings()
    logger = logging.getLogger("safepoint")
    logger.addHandler(seen)
    point, error = None, None
    try:
        session = safepoint.init(work)
        try:
            point = session.restore()
        finally:
            session.close()
    except Exception as caught:
        error = caught
    finally:
        logger.removeHandler(seen)
    return Start(point, error, seen.texts)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a sealed file by hand and give it the right checksum, as `docs/format.md` says."""
    content = json.loads(path.read_bytes())["content"]
    change(content)
    body = json.dumps(content).encode() + b"\n"
    path.write_bytes(b'{"xxh3_128": "%s", "content":\n' % checksum(body).encode() + body + b"}\n")
