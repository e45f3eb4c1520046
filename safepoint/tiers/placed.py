"""The verbs of a session whose sets go to another place as well: until when they wait, and what is safe there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from safepoint.collective import collective
from safepoint.errors import SafepointError
from safepoint.listener import SavePoint
from safepoint.opening import REMOTE, level_of
from safepoint.ranks import low_high
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

        self._home.deepest = REMOTE
        self._beside = Beside(self._home, agree=self._peers is self._ranks, once=in_place)
        return [self._beside]

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
        newest set after `timeout` seconds, or without a timeout as soon as something hinders it: then it is durable
        here, and goes on being put. `UsageError` for "remote" without that setting.
        Collective if the ranks coordinate: durable on all of them, as far as any rank asked for; the timeout that
        counts is that of the rank that puts the sets, the saver's.
        """
        asked = self._peers.together(lambda: level_of("wait", level, self._home.deepest))
        Verbs.wait.__wrapped__(self)  # type: ignore[attr-defined]
        newest = low_high(self._committed.number if self._committed else 0, self._home.active)
        deepest, least, most = self._peers.least(-asked, *newest)
        if least == -most:  # as in `hide`: a rank whose set has failed before has an older one
            self._agreed = max(self._agreed, least)
        if -deepest >= REMOTE:
            self._wait_for_remote(timeout)

    @collective
    def finish(self, step: SupportsIndex | None = None) -> None:
        """Declare the files now in place the result of the run, and end the session.

        If they were hidden and not written again (optional ones may be), the last set is put back first, and without
        `step` its step is that of the result; else they are a later state, without `step` with none. With the setting
        `remote`, and a step, they go there as a last set before; if that cannot be it is said in the log.
        On return the files are durable, the sets are gone, and a later `restore` leaves the files alone. On error files
        and sets are as they were. Killed inside: `restore` gives the last set, or says that the run is finished.
        Collective: one rank marks the run as finished, when the files of all are durable.
        """
        wanted = self._beside is not None and self._beside.on and step is not None
        if self._ranks.least(-wanted) != (0,):
            self._put_result(step)
        Verbs.finish.__wrapped__(self, step)  # type: ignore[attr-defined]

    def _put_result(self, step: SupportsIndex | None) -> None:
        """As a last set: whoever fetches it elsewhere is at this step. What hinders it does not hinder `finish`."""
        _, there = self._ranks.together(lambda: self._before_finish(step))
        moving = any(entry.kind == "move" for entry in self._home.manifest.entries)
        written = any(item.kind == "move" or not moving for item in there.items) or bool(there.opened)
        try:
            if self._peers.least(-written) != (0,):
                Verbs.hide.__wrapped__(self, step, wait=True)  # type: ignore[attr-defined]
            self._wait_for_remote(None)
        except SafepointError as error:
            if self._beside and self._beside.mine:
                self._beside.missed = str(error)

    def _wait_for_remote(self, timeout: float | None) -> None:
        def work() -> None:
            if self._beside:
                self._beside.wait_for(self._committed, timeout)

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
