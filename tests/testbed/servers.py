"""Real servers on the loopback interface, for as long as a test session: S3 by moto, and sftp by OpenSSH."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

BESIDE = Path(sys.executable).parent  # not resolved: that of the environment
MOTO = shutil.which("moto_server", path=f"{BESIDE}:{BESIDE.parent}/servers/bin") or ""
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAofthetests", "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-tests"}


def has(package: str) -> bool:
    try:
        __import__(package)
    except ImportError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    """Return whether it does, when it does or has ended."""
    while server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return server.poll() is None
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def listening(command: Callable[[int], list[str]]) -> Iterator[int]:
    """A server that ends with the block, at a port that is free: at another one, if somebody was quicker."""
    for _ in range(5):
        port = free_port()
        with subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                if answers(port, server):
                    yield port
                    return
            finally:
                server.kill()
    raise AssertionError("the server ends at each port")


@contextlib.contextmanager
def s3(bucket: str) -> Iterator[dict[str, str]]:
    """A bucket; the environment in which it is found."""
    if not (MOTO and has("s3fs")):
        pytest.skip("needs moto_server and s3fs: make .venv/.servers")
    with listening(lambda port: [MOTO, "-H", "127.0.0.1", "-p", str(port)]) as port:
        url = f"http://127.0.0.1:{port}"
        assert urlopen(Request(f"{url}/{bucket}", method="PUT")).status == 200
        yield {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1", **KEYS}


@contextlib.contextmanager
def sftp(into: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server of this user's, with keys of its own: the beginning of its addresses, and the environment."""
    if not (SSHD and has("sshfs")):
        pytest.skip("needs sshd and sshfs: make .venv/.servers")
    into.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", into / name], check=True)
    home = into / "home"
    (home / ".ssh").mkdir(parents=True)
    shutil.copy(into / "user", home / ".ssh/id_ed25519")
    (into / "authorized").write_bytes((into / "user.pub").read_bytes())
    key = " ".join((into / "host.pub").read_text().split()[:2])

    def command(port: int) -> list[str]:
        (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
        (into / "config").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {into / 'host'}\nAuthorizedKeysFile {into / 'authorized'}\n"
            f"PidFile none\nStrictModes no\nUsePAM no\nSubsystem sftp internal-sftp\n"
        )
        return [SSHD, "-D", "-f", str(into / "config")]

    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with listening(command) as port:
        yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}", {"HOME": str(home), "SSH_AUTH_SOCK": ""}
