"""What the tests of the verbs share: a directory with a life of the program in it, what was said, and what is there."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from safepoint import SafepointError, Session, default
from safepoint.restoring.verify import verify
from safepoint.root import Root

ROOT = ".safepoint.d/rank-00000"


NOBODY = 65534


Start = Callable[..., Session]


Said = list[tuple[str, str]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


class DeadSaver:
    """The process dies before its saver thread begins."""

    resting = False

    def submit(self, job: object, then: object = None, rests: bool = False) -> Future[Any]:
        return Future()

    def stop(self) -> None:
        pass


def when_awaited(job: Future[Any] | None, then: Callable[[], object]) -> list[bool]:
    """Let this happen when somebody begins to wait for this job. Return a list to which each look that is made at it
    before its end adds one."""
    assert job
    looks: list[bool] = []

    def exception(timeout: float | None = None) -> BaseException | None:
        if not job.done():
            looks.append(True)
            if len(looks) == 1:
                then()
        return Future.exception(job, timeout)

    job.exception = exception  # type: ignore[method-assign]
    return looks


def press_ctrl_c() -> None:
    raise KeyboardInterrupt


def kill(session: Session) -> None:
    """What the death of the process leaves: no lock, and a set in flight, or one that waits, as it is."""
    session._work.flight = session._work.waiting = None
    session._close("it was killed")


@pytest.fixture
def start(work: Path) -> Iterator[Start]:
    """Begins a life of the program: a manifest, a session, a restore. At the end no committed set may be damaged."""
    sessions: list[Session] = []

    def begin(manifest: str | bytes = "", *, where: Path = work, restore: bool = True, **options: Any) -> Session:
        if manifest:
            (where / ".safepoint").write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
        session = Session(where, **options)
        sessions.append(session)
        if restore:
            session.restore()
        return session

    yield begin
    for session in sessions:
        if isinstance(session._work.thread, DeadSaver):
            kill(session)
        with suppress(SafepointError):
            session.close()
    states = verify(Root(os.path.realpath(work)))
    assert set(states.values()) <= {"committed", "uncommitted"}, states


@pytest.fixture
def said() -> Iterator[Said]:
    """Level and text of what was logged so far, from INFO on; a test may clear it."""
    heard: Said = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append((record.levelname, record.getMessage()))

    logger, hearing = logging.getLogger("safepoint"), Hearing()
    logger.addHandler(hearing)
    logger.setLevel(logging.INFO)
    yield heard
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(hearing)


@pytest.fixture
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No default session goes from one test to the next."""
    monkeypatch.setattr(default, "_default", None)
    monkeypatch.setattr(default, "_refused", "", raising=False)
    yield
    if default._default is not None:
        with suppress(SafepointError):
            default._default.close()


def write(directory: Path, **files: str | bytes) -> None:
    """`u_dat="…"` writes u.dat, `sub__v_dat` sub/v.dat; history.csv only ever grows."""
    for key, given in files.items():
        path = directory / key.replace("__", "/").replace("_", ".")
        data = given if isinstance(given, bytes) else given.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        grows = path.name == "history.csv" and path.exists()
        with path.open("ab" if grows else "wb") as file:
            file.write(data[path.stat().st_size :] if grows else data)


def contents(directory: Path) -> dict[str, str]:
    """What W holds without the manifest and the side directory: files with their text, links with their target."""
    found = {}
    tops = [top for top in directory.iterdir() if top.name not in (".safepoint", ".safepoint.d")]
    below = [path for top in tops if top.is_dir() and not top.is_symlink() for path in top.rglob("*")]
    for path in sorted([*tops, *below]):  # not all of the directory: the saver may be at work in its own
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            found[name + "/"] = ""
        else:
            found[name] = path.read_text(errors="replace") if path.is_file() else "special"
    return found


def sets(work: Path) -> list[int]:
    """The numbers of the committed sets."""
    return sorted(int(path.parent.name[4:]) for path in (work / ROOT).glob("set-*/record.json"))


def events(work: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (work / ROOT / "log.jsonl").read_text().splitlines()]


@contextmanager
def ordinary_user(*directories: Path) -> Iterator[None]:
    """Without the powers of root, to whom no permission matters."""
    if os.geteuid() != 0:
        yield
        return
    for directory in directories:
        os.chown(directory, NOBODY, NOBODY)
    directories[0].parent.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# The loop.
class Death(Exception):
    pass
