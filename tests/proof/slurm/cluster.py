"""Slurm on this machine alone: one controller and one node, started by the tests and ended with them.

No service, no munge, no cgroups: authentication is switched off, and everything listens on the loopback interface only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from testbed.waiting import wait_for

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

CONFIGURATION = """\
ClusterName=safepoint
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=2
MinJobAge=1000
SlurmdTimeout=300
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SelectType=select/linear
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """What stands in the way of a cluster here; empty: nothing."""
    programs = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if programs:
        return f"Slurm left out: no {', '.join(programs)} (Debian's package slurm-wlm)"
    return "" if os.geteuid() == 0 else "Slurm left out: without munge it runs as root only"


pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(900),
]


def events(work: Path) -> str:
    """The log of rank 0."""
    path = work / ".safepoint.d/rank-00000/log.jsonl"
    return path.read_text() if path.exists() else ""


def out(work: Path) -> str:
    """What the job has said."""
    return (work / "job.out").read_text() if (work / "job.out").exists() else ""


def _own_ports(count: int) -> list[socket.socket]:
    """Sockets that have a port each, and keep it as long as they are open: no other process is given it meanwhile, and
    a daemon that is told of it can still listen there, as Slurm's do with SO_REUSEADDR too."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    return sockets


class Cluster:
    """The two daemons in `top`, a directory with a short name."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("state", "spool"):
            (top / name).mkdir()
        self.host = socket.gethostname().partition(".")[0]
        self.ports = _own_ports(2)
        ports = [each.getsockname()[1] for each in self.ports]
        text = CONFIGURATION.format(top=top, host=self.host, user="root", ports=ports)
        (top / "slurm.conf").write_text(text)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMI_", "MPI"))}
        self.environment = {**clean, "SLURM_CONF": str(top / "slurm.conf"), "PATH": PATH}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.start("slurmctld")
        self.start("slurmd")
        wait_for(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), self.logs)

    def start(self, name: str) -> None:
        with open(self.top / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                [shutil.which(name, path=PATH) or name, "-D"], env=self.environment, stdout=out, stderr=out
            )

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300)
        return done.stdout.strip()

    def submit(self, script: str, work: Path, *options: str) -> str:
        """The number of the job."""
        path = work / "job.sh"
        path.write_text(script)
        command = ("sbatch", "--parsable", "--open-mode=append", f"--output={work}/job.out", *options, str(path))
        done = subprocess.run(command, env=self.environment, cwd=work, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        words = self.ask("scontrol", "show", "job", "-o", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def state(self, number: str) -> str:
        return self.job(number).get("JobState", "")

    def until_ended(self, number: str) -> str:
        wait_for(lambda: self.state(number) in ENDED, self.logs)
        return self.state(number)

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.top.glob("*.log")))

    def kill_node(self) -> list[int]:
        """As if the node were lost: slurmd and all slurmstepd die, and leave the processes of the job alone."""
        steps: list[int] = []
        wait_for(lambda: steps.extend(self._steps()) or steps, self.logs)
        for pid in [self.daemons["slurmd"].pid, *steps]:
            _kill(pid)
        self.daemons["slurmd"].wait()
        # A process group that is orphaned while a member is stopped gets SIGHUP: so nobody may be stopped before.
        wait_for(lambda: not any(alive(pid) for pid in steps), self.logs)
        return steps

    def _steps(self) -> list[int]:
        """slurmstepd writes its title over its environment: its open files and its directory tell too whose it is."""
        found = []
        for pid, words in _processes():
            if "slurmstepd" in words[0]:
                links = [f"/proc/{pid}/cwd"]
                with contextlib.suppress(OSError):  # it has just ended
                    links += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
                targets = [os.path.realpath(link) for link in links]
                if str(self.top) in _environment(pid) or any(each.startswith(str(self.top)) for each in targets):
                    found.append(pid)
        return found

    def end(self) -> None:
        self.ask("scancel", "--full", "--signal=KILL", "--user=root")
        for name in ("slurmd", "slurmctld"):
            daemon = self.daemons[name]
            daemon.terminate()
            try:
                daemon.wait(120)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for port in self.ports:
            port.close()
        for pid, words in _processes():
            if "slurm" in " ".join(words) and str(self.top) in _environment(pid):
                _kill(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, list[str]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0]:
                found.append((int(entry.name), words))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
