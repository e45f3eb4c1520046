"""Nodes with names, addresses and disks of their own: network namespaces, UTS names and loop devices. `mpiexec` starts
ranks across them, and copies go from one to the other by TCP."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import launcher
import pytest
from testbed import noded
from testbed.cluster import Running, Said
from testbed.waiting import wait_for

NODES = (1, 2, 3)
MANIFEST = noded.MANIFEST.replace("domain = $DOMAIN\n", "")
# Of this process alone: two runs on one machine do not take down each other's.
OWN = f"{os.getpid():x}"
NET = f"10.{64 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
pytestmark = [pytest.mark.proof, pytest.mark.xdist_group("namespaces")]


def why_not() -> str:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root"
    if missing := [name for name in ("ip", "unshare", "mkfs.ext4", "losetup") if not shutil.which(name)]:
        return f"needs {', '.join(missing)}"
    if subprocess.run(["ip", "netns", "add", f"sp{OWN}"], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", f"sp{OWN}"], check=True)
    return ""


def do(*words: object) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True)


class Hosts:
    """Three of them, at one bridge."""

    def __init__(self, top: Path) -> None:
        self.top, self.start = top, top / "start"
        self.start.mkdir()
        (self.start / ".safepoint").write_text(MANIFEST)
        self._undo: list[tuple[object, ...]] = []
        self._launcher = top / "launch"
        self._launcher.write_text(
            '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift; n=${host##*.}\n'
            f'exec ip netns exec sp{OWN}-$n unshare -u sh -c "hostname spnode$n; export DISK={top}/disk-$n; $*"\n'
        )
        self._launcher.chmod(0o755)

    def up(self) -> None:
        self._did(("ip", "link", "add", f"sp{OWN}b", "type", "bridge"), ("ip", "link", "del", f"sp{OWN}b"))
        do("ip", "addr", "add", f"{NET}.254/24", "dev", f"sp{OWN}b")
        do("ip", "link", "set", f"sp{OWN}b", "up")
        for n in NODES:
            self._did(("ip", "netns", "add", f"sp{OWN}-{n}"), ("ip", "netns", "del", f"sp{OWN}-{n}"))
            do("ip", "link", "add", f"sp{OWN}v{n}", "type", "veth", "peer", "name", "eth0", "netns", f"sp{OWN}-{n}")
            do("ip", "link", "set", f"sp{OWN}v{n}", "master", f"sp{OWN}b", "up")
            do("ip", "-n", f"sp{OWN}-{n}", "addr", "add", f"{NET}.{n}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                do("ip", "-n", f"sp{OWN}-{n}", "link", "set", link, "up")
            do("ip", "-n", f"sp{OWN}-{n}", "route", "add", "default", "via", f"{NET}.254")
            self.give_disk(n)

    def _did(self, what: tuple[object, ...], undo: tuple[object, ...]) -> None:
        do(*what)
        self._undo.append(undo)

    def give_disk(self, n: int) -> None:
        image, where = self.top / f"image-{n}", self.top / f"disk-{n}"
        with image.open("wb") as file:
            file.truncate(64 << 20)
        do("mkfs.ext4", "-q", "-F", image)
        where.mkdir(exist_ok=True)
        self._did(("mount", "-o", "loop", image, where), ("umount", "-l", where))

    def run(self, where: tuple[int, ...], steps: int, *how: str) -> Running:
        program = [sys.executable, "-W", "error", noded.__file__, str(self.start), str(steps), "0.03", *how]
        hosts = ",".join(f"{NET}.{n}" for n in where)
        words = [launcher.mpiexec(), "-launcher", "ssh", "-launcher-exec", str(self._launcher)]
        return Running([*words, "-localhost", f"{NET}.254", "-hosts", hosts, "-n", str(len(where)), *program], self.top)

    def pids(self, n: int) -> list[int]:
        done = subprocess.run(["ip", "netns", "pids", f"sp{OWN}-{n}"], capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]

    def lose(self, n: int) -> None:
        """Its cable first, then all that runs there, then its disk."""
        do("ip", "link", "set", f"sp{OWN}v{n}", "down")
        for pid in self.pids(n):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.pids(n))
        do("umount", "-l", self.top / f"disk-{n}")
        (self.top / f"image-{n}").unlink()

    def down(self) -> None:
        for n in NODES:
            for pid in self.pids(n):
                os.kill(pid, signal.SIGKILL)
        for undo in reversed(self._undo):
            subprocess.run(list(map(str, undo)), capture_output=True)


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if why := why_not():
        pytest.skip(why)
    found = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        found.up()
        yield found
    finally:
        found.down()


def ended(said: Said) -> bool:
    return said.code == 0


def test_ranks_on_hosts_of_their_own_lose_one_and_go_on(hosts: Hosts) -> None:
    """Each host is a domain, and finds the address by which the others reach it."""
    running = hosts.run((1, 2), 1000)
    said = running.until(lambda said: said.last("partner") >= 5)
    start = (hosts.start / ".safepoint.d/nodes.json").read_text()
    assert {*re.findall(r"spnode\d", start)} == {"spnode1", "spnode2"}, start
    hosts.lose(2)
    running.kill()
    for pid in hosts.pids(1):  # the rank there, if the launcher has not ended it; not the process beside it
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if noded.__file__.encode() in words:
                os.kill(pid, signal.SIGKILL)
    safe = said.last("partner")
    done = hosts.run((1, 3), said.last("hid") + 3).wait()
    assert ended(done) and done.last("restored") >= safe, done
    assert "spnode1" in done.err or "this node, which has a copy" in done.err, done.err
