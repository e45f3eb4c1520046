"""The code of wrappers is compiled once, and what is kept of it is never believed."""

from __future__ import annotations

import hashlib
import marshal
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from safepoint.trace import compiled

SOURCE = "def two():\n    return 2\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "safepoint"


def two(source: str = SOURCE) -> int:
    names: dict[str, object] = {}
    exec(compiled.compiled(source, "<here>"), names)
    found = names["two"]
    assert callable(found)
    return int(found())


def kept(home: Path) -> list[Path]:
    return sorted(home.iterdir())


def test_it_is_kept_and_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert two() == 2
    (path,) = kept(home)
    with monkeypatch.context() as patch:  # it is not compiled again
        patch.setitem(compiled.__dict__, "compile", None)
        assert two() == 2
    assert two(SOURCE.replace("2", "3")) == 3 and len(kept(home)) == 2 and path in kept(home)


@pytest.mark.parametrize("how", ["flipped", "short", "empty", "no code", "other version's", "no marshal"])
def test_what_is_not_whole_is_as_none(how: str, home: Path) -> None:
    two()
    (path,) = kept(home)
    data = path.read_bytes()
    body = {"no code": marshal.dumps(7), "other version's": b"\xff" + data[33:], "no marshal": b""}.get(how)
    if body is not None:
        data = hashlib.sha256(body).digest() + body
    wrong = {"flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], "short": data[:40], "empty": b""}.get(how, data)
    path.write_bytes(wrong)
    assert two() == 2
    assert path.read_bytes() != wrong, "it was not made again"


def test_a_file_of_another_user_is_not_executed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two()
    (path,) = kept(home)
    body = marshal.dumps(compile("def two():\n    return 666\n", "<there>", "exec"))
    path.write_bytes(hashlib.sha256(body).digest() + body)
    assert two() == 666  # it is the user's own: as a .pyc is
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    assert two() == 2


def test_where_users_have_no_numbers_it_is_kept_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid")
    assert two() == 2
    monkeypatch.setitem(compiled.__dict__, "compile", None)
    assert two() == 2


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write everywhere")
def test_where_none_can_be_kept_nothing_fails(home: Path) -> None:
    home.parent.chmod(0o500)
    assert two() == 2
    home.parent.chmod(0o700)


def test_a_file_in_the_place_of_the_cache_is_no_error(home: Path) -> None:
    home.write_text("")
    assert two() == 2 and home.read_text() == ""


def test_many_ranks_at_once_leave_one_that_is_whole(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: two(), range(64))) == {2}
    assert len(kept(home)) == 1 and two() == 2
