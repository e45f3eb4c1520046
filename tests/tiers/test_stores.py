"""Every kind of place: a directory, S3, sftp. The servers are real ones."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import servers
from testbed.commands import cli
from testbed.places import FAULTS, Broken, drained, fetched, given_back, newest, run, saved
from testbed.sweep import LONG

from safepoint import NothingSavedError, SaveError, Session, UsageError
from safepoint.cli.look.elsewhere import within_errors
from safepoint.disk import Disk
from safepoint.root import Root
from safepoint.tiers import store as stores
from safepoint.tiers.place import Place, Unreachable, Vanished, place_at
from safepoint.tiers.remote import Remote
from safepoint.tiers.store import Store
from safepoint.tiers.url import Untold, parse

pytestmark = pytest.mark.xdist_group("servers")


@pytest.fixture(scope="module")
def at_s3() -> Iterator[dict[str, str]]:
    with servers.s3("bucket") as environment:
        yield environment


@pytest.fixture(scope="module")
def at_ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    with servers.sftp(tmp_path_factory.mktemp("ssh") / "server") as found:
        yield found


ELSEWHERE = [pytest.param(kind, marks=pytest.mark.proof) for kind in ("s3", "ssh")]  # with real servers


@pytest.fixture(params=["directory", *ELSEWHERE])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty place of each kind."""
    if request.param == "directory":
        return place_at(str(tmp_path / "place"), Disk(), "/", make=True)
    if request.param == "s3":
        environment, url = request.getfixturevalue("at_s3"), f"s3://bucket/{tmp_path.name}/run"
    else:
        start, environment = request.getfixturevalue("at_ssh")
        url = f"{start}{tmp_path}/place"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return place_at(url, Disk(), "/", make=True)


def test_what_each_place_must_do(place: Place) -> None:
    """Names with their sizes, seen at once; nothing of what is half put; what is gone is gone."""
    assert place.names() == {}
    place.put("FORMAT", b"x")
    place.put("set-1/a", b"12345")
    place.put("set-1/b", b"")
    assert place.names() == {"FORMAT": 1, "set-1/a": 5, "set-1/b": 0}
    place.put("set-1/a", b"123456789")  # again, as after a kill
    assert place.get("set-1/a", 9) == b"123456789" and place.get("set-1/b", 0) == b""
    for name, size in (("set-1/a", 5), ("set-1/a", 10), ("set-1/c", 1)):
        with pytest.raises(Vanished):
            place.get(name, size)
    place.remove(["set-1/a", "set-1/c"])
    assert place.names() == {"FORMAT": 1, "set-1/b": 0}
    place.remove(["set-1/b"])
    assert place.names() == {"FORMAT": 1}
    assert place.get("FORMAT", 1) == b"x"


def test_a_set_goes_there_and_comes_back(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("part", "remote"):
        monkeypatch.setattr(f"safepoint.tiers.{module}.PIECE", 10_000)
    run(tmp_path / "a")
    sent = drained(tmp_path / "a", place)
    assert newest(place) == 2 and sent.went == sent.size
    assert drained(tmp_path / "a", place).went == 0
    assert given_back(place, tmp_path / "b") == 2
    run(tmp_path / "a", 1, first=3)
    assert [name.number for name in drained(tmp_path / "a", place).removed] == [2]
    assert given_back(place, tmp_path / "b") == 3


class Flaky:
    """A file system of fsspec whose calls each fail, the first time or for ever."""

    def __init__(self, fs: Any, *, for_ever: bool = False) -> None:
        self._fs, self._seen, self._for_ever = fs, set[tuple[object, ...]](), for_ever
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._fs, name)
        if not callable(real) or name == "invalidate_cache":
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            key = (name, *(each for each in arguments if isinstance(each, str)))
            with self._lock:
                fails = self._for_ever or key not in self._seen
                self._seen.add(key)
            if fails:
                raise OSError(5, f"503 Slow Down, {servers.KEYS['AWS_SECRET_ACCESS_KEY']}")
            return real(*arguments, **named)

        return call


def in_memory(top: str = "/flaky") -> Any:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory", skip_instance_cache=True)
    with contextlib.suppress(FileNotFoundError):
        fs.rm(top, recursive=True)
    return fs


COUNTED = """
import itertools, os, signal, sys
import safepoint.tiers.part as part, safepoint.tiers.place as place, safepoint.tiers.remote as remote
import safepoint.tiers.store as store
part.PIECE = remote.PIECE = 1 << 14
puts, last = itertools.count(), int(sys.argv[2])
for kind in (place.Directory, store.Store):
    def put(self, name, data, put=kind.put):
        with open(sys.argv[1], "a") as log:
            log.write(f"{len(data)}\\n")
        if next(puts) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, name, data)
    kind.put = put
from safepoint.cli.group import program
program(sys.argv[3:])
"""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["directory", ELSEWHERE[0]])
def test_killed_at_random_an_upload_sends_no_more_than_a_tenth_again(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kill comes while pieces are on their way; what is under way then is all that goes twice."""
    kills, size = (100, 64 << 20) if LONG else (10, 8 << 20) if kind == "s3" else (4, 4 << 20)
    for name, value in request.getfixturevalue("at_s3").items() if kind == "s3" else ():
        monkeypatch.setenv(name, value)
    to = f"s3://bucket/{tmp_path.name}/kills" if kind == "s3" else str(tmp_path / "place")
    (work := tmp_path / "w").mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    (work / "u.dat").write_bytes(os.urandom(size))
    with Session(work) as session:
        session.restore()
        session.hide(1, wait=True)
        session.close()
    log = tmp_path / "sent"
    log.touch()
    words, rng = ["drain", str(work), "--to", to, "--json"], random.Random(kills)
    for _ in range(kills):
        last = str(rng.randrange(4, 20))
        done = subprocess.run([sys.executable, "-c", COUNTED, log, last, *words, "--rate", "16M"], capture_output=True)
        assert done.returncode == -signal.SIGKILL, "it was through before all kills: this tests less than it says"
    done = subprocess.run([sys.executable, "-c", COUNTED, log, "-1", *words], capture_output=True, check=True)
    there = json.loads(done.stdout)["size"]
    sent = sum(map(int, log.read_text().split()))
    print(f"{kind}: {kills} kills, {sent / there:.3f} of the set sent")
    assert there <= sent <= 1.1 * there, (sent, there)
    fetched(place_at(to, Disk(), "/"), made(tmp_path / "b"))
    with Session(tmp_path / "b") as session:
        assert session.restore()
        session.close()
    assert (tmp_path / "b/u.dat").read_bytes() == Path(Root(str(work)).set(1), "files/u.dat").read_bytes()


def made(work: Path) -> Path:
    work.mkdir()
    (work / ".safepoint").write_text("u.dat\n")
    return work


def test_a_store_that_fails_each_call_once_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.0)
    flaky = Flaky(in_memory())
    store = Store(parse("s3://bucket/flaky"), lambda url: (flaky, "/flaky"))
    run(tmp_path / "a")
    drained(tmp_path / "a", store)
    assert newest(store) == 2 and given_back(store, tmp_path / "b") == 2


def test_a_store_that_is_down_is_named_without_what_is_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error repeats no credentials, though what lies beneath does; and changes nothing here."""
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.0)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.KEYS["AWS_SECRET_ACCESS_KEY"])
    flaky = Flaky(in_memory(), for_ever=True)
    store = Store(parse("s3://bucket/flaky"), lambda url: (flaky, "/flaky"))
    run(tmp_path / "a")
    with pytest.raises(Unreachable, match=r"s3://bucket/flaky: cannot list it: .*503 Slow Down, \*\*\*") as caught:
        drained(tmp_path / "a", store)
    assert "the-secret" not in str(caught.value) and caught.value.__cause__ is None
    with pytest.raises(SaveError, match="all sets are as they were"):
        within_errors(store.names, "s3://bucket/flaky", "put to")


CALLS = {  # of a store, and the names for which they are made
    "list all": ("ls", "run$"), "list a set": ("ls", "set-[^/]*$"), "get FORMAT": ("cat_file", "FORMAT$"),
    "get a claim": ("cat_file", "claim-[^/]*$"), "get an index": ("cat_file", "json$"),
    "get a piece": ("cat_file", "rank-[0-9]*[.][0-9]"), "put FORMAT": ("pipe_file", "FORMAT$"),
    "put a claim": ("pipe_file", "claim-[^/]*$"), "put an index": ("pipe_file", "json$"),
    "put a piece": ("pipe_file", "rank-[0-9]*[.][0-9]"), "remove": ("rm", "set-"),
}  # fmt: skip
VERBS = {
    "fetch": ["fetch", "URL", "NEW"], "fetch --list": ["fetch", "URL", "--list"], "drain": ["drain", "RUN"],
    "drain --anew": ["drain", "RUN", "--anew"], "drain elsewhere": ["drain", "OTHER", "--to", "URL"],
    "take over": ["drain", "OTHER", "--to", "URL", "--take-over"], "verify": ["verify", "RUN", "--level", "remote"],
    "why": ["why", "RUN", "--level", "remote"], "status": ["status", "RUN"],
}  # fmt: skip
# Exit codes that are right though a call failed in this way: what is there is as good as damaged, or another's.
MAY_BE = {"list a set": {18}, "get FORMAT": {12}, "get an index": {18}, "get a piece": {18}, "get a claim": set[int]()}
ITS_OWN = {"drain elsewhere": {13}}  # as ever: there are sets of another directory


@pytest.mark.parametrize(
    "call", [each if each.startswith("list") else pytest.param(each, marks=pytest.mark.proof) for each in CALLS]
)
def test_no_verb_takes_a_store_that_fails_for_an_empty_one(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verb, while one call fails in each way. Who hears "there is no set" begins from zero, and who hears that
    all is gone takes over."""
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr("safepoint.tiers.note.home", lambda root: "1")  # a copy is the same directory here
    fs, url, outcomes = in_memory("/bucket"), "s3://bucket/run", dict[tuple[str, str], str]()
    monkeypatch.setattr(stores, "_connected", lambda url: (fs, f"/{url.path}"))
    for name in ("run", "other"):
        saved(tmp_path / name, manifest=f"u.dat\nremote = {url}\ndrain = off\n", steps=1)
    assert cli("drain", tmp_path / "run").exit_code == 0
    saved(tmp_path / "run", manifest=(tmp_path / "run/.safepoint").read_text(), steps=1)
    for each in ("run", "other"):
        shutil.copytree(tmp_path / each, tmp_path / f"before/{each}", symlinks=True)
    there = {name: fs.cat_file(name) for name in fs.find("/bucket")}
    for fault, (verb, words) in itertools.product(FAULTS, VERBS.items()):
        put_back(fs, there, tmp_path)
        broken = Broken(fs, *CALLS[call], FAULTS[fault])
        monkeypatch.setattr(stores, "_connected", lambda url, broken=broken: (broken, f"/{url.path}"))
        named = {"URL": url, "NEW": tmp_path / "new", "RUN": tmp_path / "run", "OTHER": tmp_path / "other"}
        done = cli(*(named.get(word, word) for word in words))
        outcomes[fault, verb] = f"{done.exit_code}{'' if broken.met else ' (call not made)'}"
        where = f"{call}, {fault}, {verb}: {done.exit_code}: {done.output}"
        assert "there is no set" not in done.output and "nothing any more" not in done.output, where
        assert done.exit_code in {0, 16, *MAY_BE.get(call, ()), *ITS_OWN.get(verb, ())}, where
        if done.exit_code == 16:
            assert url in done.output and broken.met, where
        if broken.met and call == "list all":
            assert done.exit_code == 16 or fault in ("half", "wrong"), where
    print_table(call, outcomes)


S3_ERROR = "<Error><Code>{}</Code><Message>{}</Message></Error>"
ANSWERS = {  # of S3, whatever it is asked: status, body, and what a message must say
    "403": (403, S3_ERROR.format("AccessDenied", "Access Denied"), "AccessDenied"), "403 mute": (403, "", "Forbidden"),
    "key": (403, S3_ERROR.format("InvalidAccessKeyId", "No such key id."), "InvalidAccessKeyId"),
    "expired": (400, S3_ERROR.format("ExpiredToken", "It has expired."), "ExpiredToken"),
    "500": (500, S3_ERROR.format("InternalError", "An error of ours."), "InternalError"), "503": (503, "", "503"),
    "bucket": (404, S3_ERROR.format("NoSuchBucket", "No such bucket"), "NoSuchBucket"), "404": (404, "", "404"),
    "empty": (200, "", "FORMAT"), "page": (200, "<html><p>Sign in<br></html>", "500"),
    "cut": (200, '<?xml version="1.0"?><ListBucketResult><Na', "500"),
}  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize("kind", ANSWERS)
def test_what_s3_answers_is_never_taken_for_an_empty_place(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way through s3fs, which translates some of it and swallows some."""
    pytest.importorskip("s3fs")
    status, body, cause = ANSWERS[kind]

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr(stores, "TRIES", 1)  # s3fs tries again itself
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in {**environment, **servers.KEYS}.items():
            monkeypatch.setenv(name, value)
        for words in (["fetch", "s3://bucket/run", tmp_path / "new"], ["fetch", "s3://bucket/run", "--list"]):
            done = cli(*words)
            assert done.exit_code == 16 and "s3://bucket/run" in done.output and cause in done.output, done.output
        server.shutdown()


def put_back(fs: Any, store: dict[str, bytes], top: Path) -> None:
    """All as it was before the first verb."""
    fs.rm("/bucket", recursive=True)
    for name, data in store.items():
        fs.pipe_file(name, data)
    for each in ("run", "other", "new"):
        shutil.rmtree(top / each, ignore_errors=True)
        if each != "new":
            shutil.copytree(top / f"before/{each}", top / each, symlinks=True)


def print_table(call: str, outcomes: dict[tuple[str, str], str]) -> None:
    """Of one call, the exit code of each verb by how the call fails."""
    print(f"| {call} | {' | '.join(VERBS)} |\n|{'---|' * (len(VERBS) + 1)}")
    for fault in FAULTS:
        print(f"| {fault} | {' | '.join(outcomes[fault, verb] for verb in VERBS)} |")


@pytest.mark.proof
def test_an_unknown_host_is_refused(at_ssh: tuple[str, dict[str, str]], tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Whoever answers for a host whose key is not known may be anybody."""
    start, environment = at_ssh
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.0)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    known = Path(environment["HOME"], ".ssh/known_hosts")
    before = known.read_text()
    try:
        known.write_text(before.replace("AAAAC3", "AAAAC4") if "AAAAC4" not in before else "")
        known.write_text("")
        with pytest.raises(Unreachable, match=r"(?i)host key"):
            place_at(f"{start}{tmp_path}/x", Disk(), "/").names()
    finally:
        known.write_text(before)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3://key:secret@bucket/x", "has a secret in it"), ("s3://key@bucket/x", "has a secret in it"),
        ("ssh://me:secret@host/x", "has a secret in it"), ("s3://bucket/x?X-Amz-Signature=secret", "a key or"),
        ("s3://bucket", "takes a place of its own"), ("ssh://host/", "takes a directory of its own"),
        ("s3:///x", "takes a place of its own"), ("http://host/x", "knows no http://"), ("", "takes a directory"),
        ("ssh://host:port/x", "no address that can be read"), ("s3://bucket/../x", "leads over"),
        ("me:secret@host:/x", "user and a password"), ("me:sec/secret@host:dir", "user and a password"),
        ("s3:AKIA:secret@host", "user and a password"), ("//me:secret@host/x", "user and a password"),
        ("me:secret@x://y", "no address that can be read"), ("ssh://me%3Asecret@host/x", "has a secret in it"),
        ("ssh://me:sec/secret@host/x", "no address|secret"), ("s3://k:sec/secret@bucket/x", "no address|secret"),
        ("AccountName=a;AccountKey=secret@", "a key or a password"), ("/mnt/x?token=secret@", "a key or a password"),
        ("s3://bucket/AKIAIOSFODNN7EXAMPLE/secret@", "a key or a password"),
        ("https://k:secret@host/x", "knows no https"),
        ("~/x", "nobody expands"), ("~", "nobody expands"), ("$SCRATCH/x", "nobody expands"),
        ("me@host:dir", "takes ssh://USER@HOST"), ("file://x", "takes an absolute path"), ("x\0y", "takes a directory"),
    ],
)  # fmt: skip
def test_what_is_no_place_is_said_without_what_is_secret(text: str, why: str) -> None:
    with pytest.raises(Untold, match=why) as caught:
        parse(text)
    assert not re.search("secret@|Signature|AKIA", str(caught.value))


@pytest.mark.parametrize(
    "text", ["a@b", "/x/me:y@z", "./me:y@z", "key=3", "/x/sig=0.5/b", "ssh://me@host:22/x", "run:7"]
)
def test_names_that_only_look_a_little_like_secrets_are_places(text: str) -> None:
    assert parse(text).text == text


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="pip install gcsfs"):
        place_at("gs://bucket/run", Disk(), "/").names()


def test_a_package_that_is_missing_is_an_error_of_init(tmp_path: Path) -> None:
    """Else the run goes on for days, and nothing ever goes there."""
    (tmp_path / ".safepoint").write_text("u.dat\nremote = gs://bucket/run\n")
    with pytest.raises(UsageError, match="gs:// needs the package gcsfs: pip install gcsfs"):
        Session(tmp_path)
    (tmp_path / ".safepoint").write_text("u.dat\nremote = gs://bucket/run\ndrain = off\n")
    Session(tmp_path).close()  # a drain by hand may be at work elsewhere


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    """Nor is the way to it made: a file system that is not mounted must not pass for an empty place."""
    (tmp_path / "file").write_text("")
    (tmp_path / "side/.safepoint.d/x").mkdir(parents=True)
    for path, make in (("file", True), ("not/there", True), ("not", False)):
        if make:
            with pytest.raises(Unreachable):
                place_at(str(tmp_path / path), Disk(), "/", make=make)
        else:
            with pytest.raises(Unreachable):
                Remote(place_at(str(tmp_path / path), Disk(), "/", make=make)).look()
    with pytest.raises(UsageError, match="side directory"):
        place_at("side/.safepoint.d/x", Disk(), str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["file", "side"]


def test_links_at_a_place_are_not_followed(tmp_path: Path) -> None:
    """A place may be writable to others: what they put there as a link is neither read nor removed through."""
    run(tmp_path / "a")
    place = place_at(str(tmp_path / "place"), Disk(), "/", make=True)
    drained(tmp_path / "a", place)
    (top,) = (tmp_path / "place").glob("set-*")
    top.rename(tmp_path / "elsewhere")
    top.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "b").mkdir()
    with pytest.raises(NothingSavedError, match=r"there is no set at"):
        fetched(place, tmp_path / "b")
    run(tmp_path / "a", 1, first=3)
    drained(tmp_path / "a", place)
    assert list((tmp_path / "elsewhere").iterdir())
