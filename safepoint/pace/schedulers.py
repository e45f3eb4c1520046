"""How much time is left of this job? What each scheduler is asked, and how its answer is read.

Slurm, PBS (OpenPBS and Torque), LSF and Flux. A function here raises any exception for an answer that it cannot read;
`limits` catches it, as no answer of a scheduler is a reason to stop a computation.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from safepoint.pace.times import clock


def _of_slurm(text: str) -> float:
    """A line for each task or component that the number stands for."""
    return min(math.inf if line in ("UNLIMITED", "NOT_SET") else clock(line) for line in text.split())


def _of_pbs(text: str) -> float:
    """`qstat -f`: of OpenPBS the limit and the start, of Torque what remains."""
    if remains := re.search(r"Walltime\.Remaining = (\d+)", text):
        return float(remains[1])
    limit, start = re.search(r"Resource_List\.walltime = ([\d:]+)", text), re.search(r"stime = (.+)", text)
    if not limit:
        return math.inf
    if not start:
        raise ValueError("it does not say when the job began")
    return time.mktime(time.strptime(start[1].strip(), "%a %b %d %H:%M:%S %Y")) + clock(limit[1]) - time.time()


def _of_lsf(text: str) -> float:
    """`hours:minutes L`, with seconds too where that is switched on; a dash, or E, an estimate: no limit."""
    words = text.split()
    if words[:1] == ["-"] or words[1:2] == ["E"]:
        return math.inf
    if len(text.splitlines()) != 1:
        raise ValueError("not one line")
    return clock(words[0] if words[0].count(":") == 2 else f"{words[0]}:00")


def job_number(environment: Mapping[str, str], job: str, array: str, task: str, form: str) -> str:
    """The number of a job, or of this task of an array of jobs."""
    number = environment.get(task, "")
    return form.format(environment.get(array) or environment[job], number) if number.strip("0") else environment[job]


class Scheduler(NamedTuple):
    name: str
    job: str  # the variable with the number of the job
    command: tuple[str, ...]  # that tells how much time is left; the number of the job follows
    left: Callable[[str], float]
    array: tuple[str, str, str] = ("", "", "{}")  # variables of an array of jobs and its task, and how to name that
    end: str = ""  # the variable with the end of the job, if the scheduler sets one; seconds since the epoch


SCHEDULERS = (
    Scheduler("Slurm", "SLURM_JOB_ID", ("squeue", "-h", "-o", "%L", "-j"), _of_slurm,
              ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "{}_{}"), "SLURM_JOB_END_TIME"),
    Scheduler("PBS", "PBS_JOBID", ("qstat", "-f"), _of_pbs),
    Scheduler("LSF", "LSB_JOBID", ("bjobs", "-noheader", "-o", "time_left"), _of_lsf, ("", "LSB_JOBINDEX", "{}[{}]")),
    Scheduler("Flux", "FLUX_JOB_ID", ("flux", "job", "timeleft"), float),
)  # fmt: skip
