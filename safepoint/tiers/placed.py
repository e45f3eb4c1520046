"""The verbs of a session whose sets go to another place as well: until when they wait, and what is safe there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from safepoint.collective import collective
from safepoint.errors import SafepointError, UsageError
from safepoint.listener import SavePoint
from safepoint.opening import LOCAL, REMOTE, level_of
from safepoint.ranks import LARGEST, low_high
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import read_record
from safepoint.session import Verbs

if TYPE_CHECKING:
    from safepoint.tiers.beside import Beside


class Placed(Verbs):
    """`restore`, `hide`, `wait`, `finish` and `close` of a directory, and of the place of its setting `remote`."""

    _beside: Beside | None = None

    def _with_a_drain(self, in_place: bool) -> list[Beside]:
        """The listener, if the manifest names another place for the sets; else nothing of it is loaded."""
        if self._home.manifest.setting("remote") is None:
            return []
        from safepoint.tiers.beside import Beside

        self._beside = Beside(self._home, agree=self._peers is self._ranks, once=in_place)
        self._home.deepest = REMOTE if self._beside.on else LOCAL
        return [self._beside]

    def _refuse_some(self) -> None:
        """Ranks with directories of their own have manifests of their own: they go together, or not at all."""
        put = self._beside is not None and self._beside.on
        if self._ranks.least(put, -put) == (0, -1):
            _, names = self._ranks.name_some(not put)
            text = f"the manifest of {names} has no setting remote, or drain = off: give it to all ranks alike"
            self._ranks.fail_together(UsageError(text))

    @collective
    def hide(
        self, step: SupportsIndex | None = None, *, wait: bool | str = False, extra: Mapping[str, Any] | None = None
    ) -> SavePoint | None:
        """Move the listed files into safekeeping as one set, labelled `step`, with a few JSON values of `extra`.

        On return the files are out of the way and safe from the death of this process; with `wait`, and for the first
        set always, from power loss too; with `wait="remote"` the set is at the place of the setting `remote`. None:
        none of the files existed, so there was nothing to hide.
        On error the files of this call are where they were, or, if the disk refuses even that, the error says where;
        if it is the error of the set before (`SaveError`), nothing of this call was begun. Only if it says that the set
        is not at the remote place, the set is durable here. Killed inside: `restore` gives this set or the previous
        one, whole.
        Collective if the ranks coordinate: all return, or all raise the same error; `step` and `extra` are the same on
        all, and all wait for the furthest that any rank asked for. `UsageError` for a step that is no integer, an extra
        of over 4096 bytes or of what JSON does not have, or "remote" without that setting.
        """
        point: SavePoint | None = Verbs.hide.__wrapped__(  # type: ignore[attr-defined]
            self, step, wait=wait, extra=extra
        )
        if point and self._beside and self._beside.level >= REMOTE:
            self._wait_for_remote(None)
        return point

    @collective
    def wait(self, level: str = "local", timeout: float | None = None) -> None:
        """Return when everything hidden so far is durable, here ("local"), or at the place of the setting `remote`.

        Raises the `SaveError` of the set in flight if it failed; one that names the place if that does not have the
        newest set `timeout` seconds after the call, or without a timeout as soon as something hinders it: then it is
        durable here, and goes on being put. What is being stored here is waited for as long as it takes. `UsageError`
        for "remote" without that setting, and for a timeout that is none. Handlers of signals run on return.
        Collective if the ranks coordinate: durable on all of them, as far as any rank asked for; the shortest timeout
        that was given counts.
        """
        begun, ranks = time.monotonic(), self._peers
        asked, patience = ranks.together(lambda: (level_of("wait", level, self._home.deepest), _patience(timeout)))
        Verbs.wait.__wrapped__(self)  # type: ignore[attr-defined]
        newest = low_high(self._committed.number if self._committed else 0, self._home.active)
        deepest, least, most, shortest = ranks.least(-asked, *newest, patience)
        if least == -most:  # as in `hide`: a rank whose set has failed before has an older one
            self._agreed = max(self._agreed, least)
        if -deepest >= REMOTE:
            self._wait_for_remote(None if shortest == LARGEST else begun + shortest / 1e3)

    @collective
    def finish(self, step: SupportsIndex | None = None) -> None:
        """Declare the files now in place the result of the run, and end the session.

        If they were hidden and not written again (optional ones may be), the last set is put back first, and without
        `step` its step is that of the result; else they are a later state, without `step` with none. With the setting
        `remote` the result goes there before, if it has a step; if that cannot be it is said in the log.
        On return the files are durable, the sets are gone, and a later `restore` leaves the files alone. On error files
        and sets are as they were. Killed inside: `restore` gives the last set, or says that the run is finished.
        Collective: one rank marks the run as finished, when the files of all are durable.
        """
        wanted = self._beside is not None and self._beside.on
        if self._ranks.least(-wanted) != (0,):
            self._put_result(step)
        Verbs.finish.__wrapped__(self, step)  # type: ignore[attr-defined]

    def _put_result(self, step: SupportsIndex | None) -> None:
        """As a last set, of copies: the files stay where they are, so what hinders it does not hinder `finish`. If
        there is nothing new since the last set, that is the result."""
        at, there = self._ranks.together(lambda: self._before_finish(step))
        moving, listed = any(entry.kind == "move" for entry in self._home.manifest.entries), self._home.manifest
        written = any(item.kind == "move" or not moving for item in there.items) or bool(there.opened)
        self._missed("")
        try:
            if self._peers.least(-written, -(at is not None)) == (-1, 0):
                self._missed("it has no step: finish(step=…) puts it there")
                return
            if self._peers.least(-written) != (0,):
                self._home.manifest = listed.in_place()
                Verbs.hide.__wrapped__(self, step, wait=True)  # type: ignore[attr-defined]
            self._wait_for_remote(None)
        except SafepointError as error:
            self._missed(str(error))
        finally:
            self._home.manifest = listed

    def _missed(self, why: str) -> None:
        if self._beside:
            self._beside.missed = why

    def _wait_for_remote(self, until: float | None) -> None:
        def work() -> None:
            if self._beside:
                self._beside.wait_for(self._committed, until)

        self._peers.together(work)

    @property
    def safe(self) -> dict[str, int | None]:
        """The step of the newest set that survives a power cut here ("local"), and of the newest one that is at the
        place of the setting `remote`, as far as this rank knows; None if it knows of none. No communication."""
        last, local = self._committed, None
        if last and (self._peers.size == 1 or last.number <= self._agreed):
            local = last.step
        elif last and self._agreed:  # the others may not yet have the last one
            with contextlib.suppress(Damaged, OSError):
                local = read_record(self._root, self._agreed).step
        return {"local": local, "remote": self._beside.remote_step if self._beside else None}


def _patience(timeout: float | None) -> int:
    """Milliseconds. Raises `UsageError`."""
    if timeout is None:
        return LARGEST
    if not isinstance(timeout, (int, float)) or not 0 <= timeout < 1e9:  # not a number is neither
        raise UsageError(f"wait: timeout must be a number of seconds, not {timeout!r:.100}; nothing was changed")
    return int(timeout * 1000)
