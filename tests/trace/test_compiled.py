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


EVIL = marshal.dumps(compile("def two():\n    return 666\n", "<there>", "exec"))
PLANTED = hashlib.sha256(EVIL).digest() + EVIL


@pytest.mark.parametrize(
    "open_to_others",
    ["", "safepoint", "safepoint/*", "linked"],
    ids=["the directory above", "the directory", "the file", "where a link leads"],
)
def test_what_others_could_have_put_there_is_not_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, open_to_others: str
) -> None:
    """A shared cache, or one made with umask 000: another place is taken, and it is told which and why. Root's and
    one's own are as they were."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    two()
    (path,) = kept(home)
    path.write_bytes(PLANTED)
    assert two() == 666
    if open_to_others == "linked":
        (tmp_path / "elsewhere").mkdir()
        home.rename(tmp_path / "elsewhere/safepoint")
        home.symlink_to(tmp_path / "elsewhere/safepoint")
        open_to_others = "elsewhere"
    (there,) = tmp_path.glob(open_to_others) if open_to_others else [tmp_path]
    there.chmod(0o777)
    assert two() == 2
    assert f"others may write to {there} (mode 0777): what is compiled is kept in {tmp_path}/home/" in caplog.text or (
        there == tmp_path and f"others may write to {there}" in caplog.text
    )
    if there != tmp_path:
        assert [path.name for path in (tmp_path / "home/.cache/safepoint").iterdir()] == [path.name]
        assert {way.stat().st_mode & 0o777 for way in (tmp_path / "home").rglob("*") if way.is_dir()} == {0o700}


def test_of_another_user_nothing_is_run_either(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two()
    (path,) = kept(home)
    path.write_bytes(PLANTED)
    try:
        os.chown(home, 4321, -1)
    except PermissionError:
        pytest.skip("only root can give a directory away")
    assert two() == 2
