"""Until when may this process run? `stop_at`, `stop_after`, and what the job scheduler says.

The program gives the first two, or the environment (SAFEPOINT_STOP_AT, SAFEPOINT_STOP_AFTER: for a job script); the
earliest limit counts. A scheduler is asked when the session first looks, and again before the program stops, since a
limit can be extended.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

from safepoint.errors import UsageError
from safepoint.pace.schedulers import SCHEDULERS, Scheduler, job_number
from safepoint.pace.times import duration, moment

logger = logging.getLogger("safepoint")
SCHEDULER_ANSWER_S = 10.0  # after that a scheduler has not answered


class Limit:
    """Until when this process may run. `end`: seconds since the epoch, or infinite. `told`: the end of the job, as the
    scheduler told it at its start."""

    asked = -math.inf  # when; seconds since the epoch
    failed = False

    def __init__(
        self, source: str, end: float, scheduler: Scheduler | None = None, job: str = "", told: str = ""
    ) -> None:
        self.source, self.end, self.scheduler, self.job, self.told = source, end, scheduler, job, told

    def ask(self, *, again: bool) -> None:
        """Bring the end up to date. What hinders it is said, once, and the end stays as it was."""
        scheduler = self.scheduler
        if scheduler is None:
            return
        self.asked = time.time()
        if not again and self.told.isdecimal():
            self.end = float(self.told)
            return
        import subprocess  # here: only a job that must ask its scheduler needs it

        command = (*scheduler.command, self.job)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SCHEDULER_ANSWER_S, check=True,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self.end, self.failed = time.time() + scheduler.left(done.stdout.strip()), False
        except Exception as error:  # whatever it answered is no reason to stop a computation
            why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
            known = "the limit it told before is kept" if math.isfinite(self.end) else (
                "until it does its time limit does not count; or give stop_at or stop_after"
            )  # fmt: skip
            logger.log(logging.DEBUG if self.failed else logging.WARNING,
                       "%s did not tell how much time is left (%s: %s): %s",
                       scheduler.name, " ".join(command), why or type(error).__name__, known)  # fmt: skip
            self.failed = True


def time_limits(
    stop_at: str | float | None, stop_after: str | float | None, began: float, environment: Mapping[str, str]
) -> list[Limit]:
    """All that are known. `began`: seconds since the epoch. Raises `UsageError` for a time that is none."""
    found = []
    given = {
        "stop_at": stop_at, "stop_after": stop_after, "SAFEPOINT_STOP_AT": environment.get("SAFEPOINT_STOP_AT") or None,
        "SAFEPOINT_STOP_AFTER": environment.get("SAFEPOINT_STOP_AFTER") or None,
    }  # fmt: skip
    for name, value in given.items():
        if value is None:
            continue
        at = name.lower().endswith("at")
        try:
            number = float(value) if not isinstance(value, str) else (moment(value, began) if at else duration(value))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{name}={value}: {error}") from error
        if not math.isfinite(number):
            raise UsageError(f"{name}={value}: not a time")
        found.append(Limit(name, number if at else began + number))
    for scheduler in SCHEDULERS:
        if environment.get(scheduler.job):
            job = job_number(environment, scheduler.job, *scheduler.array)
            found.append(Limit(scheduler.name, math.inf, scheduler, job, environment.get(scheduler.end, "")))
            break
    return found
