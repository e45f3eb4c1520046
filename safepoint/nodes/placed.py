"""The verbs of a session whose sets go to another place as well: until when they wait, and what is safe there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from safepoint.collective import collective
from safepoint.disk import Disk
from safepoint.disk.files import stat_or_none
from safepoint.errors import SafepointError, SaveError, UsageError
from safepoint.listener import SavePoint
from safepoint.nodes.local import names_local, refuse_left_on_nodes, refuse_on_nodes
from safepoint.opening import LOCAL, PARTNER, REMOTE, level_of
from safepoint.ranks import LARGEST, Ranks, Serial, low_high
from safepoint.restart import Restart
from safepoint.restoring import baseline
from safepoint.restoring.read import Damaged
from safepoint.restoring.survey import read_record
from safepoint.session import Verbs
from safepoint.settings import Setting
from safepoint.tiers.url import refuse_lacking

STEP, POLL = 0.5, 0.02  # seconds between two agreements of ranks that wait; between two looks
END = object()

if TYPE_CHECKING:
    from safepoint.nodes.session import Nodes
    from safepoint.tiers.beside import Beside


class Placed(Verbs):
    """`restore`, `hide`, `wait`, `finish` and `close` of a directory, and of the place of its setting `remote`."""

    _beside: Beside | None = None
    _nodes: Nodes | None = None  # the same, with the setting `local`

    def __init__(
        self, directory: str | os.PathLike[str], ranks: Serial | Ranks, disk: Disk, options: dict[str, Any],
        settings: Mapping[str, Setting], *, in_place: bool,
    ) -> None:  # fmt: skip
        """As `Verbs`; where the files are on disks of nodes it begins, and restarts, in another way."""
        if names_local(ranks, directory, options["saver"]):
            from safepoint.nodes.gathering import Gathering
            from safepoint.nodes.home import Home

            def restarts(*arguments: Any, **options: Any) -> Restart:
                assert self._nodes
                return Gathering(self._nodes, *arguments, **options)

            self._opens, self._restarts = Home, restarts
        super().__init__(directory, ranks, disk, options, settings, in_place=in_place)

    def _with_a_drain(self, in_place: bool) -> list[Beside]:
        """The listener, if the manifest names another place for the sets; else nothing of it is loaded. Raises
        `UsageError`, also if that needs a package that is missing: the drain would only warn, and nothing ever go."""
        home, agree = self._home, self._peers is self._ranks
        if home.manifest.setting("local") is not None:
            refuse_on_nodes(agree=agree, in_place=in_place)
            from safepoint.nodes.home import Home
            from safepoint.nodes.session import Nodes

            assert isinstance(home, Home)
            self._nodes = Nodes(home, self._sets, lambda: self._life, lambda: self._agreed, lambda: self._number)
            self._beside, home.levels = self._nodes, self._nodes.levels
            refuse_lacking(self._nodes.url)
            return [self._nodes]
        if self._ranks.rank == home.lead or self._choices.saver is None:
            refuse_left_on_nodes(self._root)
        if home.manifest.setting("remote") is None:
            return []
        from safepoint.tiers.beside import Beside

        self._beside = Beside(home, agree=agree, once=in_place)
        home.levels = (LOCAL, REMOTE) if self._beside.on else (LOCAL,)
        if self._beside.on:
            refuse_lacking(self._beside.url)
        return [self._beside]

    def _meet(self) -> None:
        """With the other nodes, if there are any. Ranks with directories of their own have manifests of their own: they
        go together, or not at all. Collective."""
        if self._nodes:
            try:
                self._nodes.meet()
            except BaseException:
                self._nodes.closed()
                raise
        if self._choices.saver is not None:
            return
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
        set always, from power loss too; with `wait="partner"` the set is on the disks of two nodes, with "remote" at
        the place of the setting `remote`. None: none of the files existed, so there was nothing to hide.
        On error the files of this call are where they were, or, if the disk refuses even that, the error says where;
        if it is the error of the set before (`SaveError`), nothing of this call was begun. Only if it says that the set
        is not at the remote place, or on the other node, the set is durable here. Killed inside: `restore` gives this
        set or the previous one, whole.
        Collective if the ranks coordinate: all return, or all raise the same error; `step` and `extra` are the same on
        all, and all wait for the furthest that any rank asked for. `UsageError` for a step that is no integer, an extra
        of over 4096 bytes or of what JSON does not have, or "partner" or "remote" without that setting.
        """
        point: SavePoint | None = Verbs.hide.__wrapped__(  # type: ignore[attr-defined]
            self, step, wait=wait, extra=extra
        )
        if point and self._beside and self._beside.level > LOCAL:
            self._wait_for(self._beside.level, None)
        return point

    @collective
    def wait(self, level: str = "local", timeout: float | None = None) -> None:
        """Return when everything hidden so far is durable: here ("local"), on the disks of two nodes ("partner"), or at
        the place of the setting `remote`.

        Raises the `SaveError` of the set in flight if it failed; one that names the place if that does not have the
        newest set `timeout` seconds after the call, or without a timeout as soon as something hinders it: then it is
        durable here, and goes on being put. What is being stored here is waited for as long as it takes. `UsageError`
        for a level without its setting, and for a timeout that is none. Handlers of signals run on return.
        Collective if the ranks coordinate: durable on all of them, as far as any rank asked for; the shortest timeout
        that was given counts.
        """
        begun, ranks = time.monotonic(), self._peers
        asked, patience = ranks.together(lambda: (level_of("wait", level, self._home.levels), _patience(timeout)))
        Verbs.wait.__wrapped__(self)  # type: ignore[attr-defined]
        newest = low_high(self._committed.number if self._committed else 0, self._home.active)
        deepest, least, most, shortest = ranks.least(-asked, *newest, patience)
        if least == -most:  # as in `hide`: a rank whose set has failed before has an older one
            self._agreed = max(self._agreed, least)
        if -deepest > LOCAL:
            self._wait_for(-deepest, None if shortest == LARGEST else begun + shortest / 1e3)

    @collective
    def finish(self, step: SupportsIndex | None = None) -> None:
        """Declare the files now in place the result of the run, and end the session.

        If they were hidden and not written again (optional ones may be), the last set is put back first, and without
        `step` its step is that of the result; else they are a later state, without `step` with none. With the setting
        `remote` the result goes there before, if it has a step; if that cannot be it is said in the log, and with the
        setting `local` it is a `SaveError`.
        On return the files are durable, the sets are gone, and a later `restore` leaves the files alone. On error files
        and sets are as they were. Killed inside: `restore` gives the last set, or says that the run is finished.
        Collective: one rank marks the run as finished, when the files of all are durable.
        """
        wanted = self._beside is not None and self._beside.on
        if self._ranks.least(-wanted) != (0,):
            self._put_result(step)
            if self._nodes:  # else it would go with the nodes
                missed = self._nodes.missed
                self._ranks.fail_together(SaveError(f"not finished: {missed}; nothing was changed") if missed else None)
        Verbs.finish.__wrapped__(self, step)  # type: ignore[attr-defined]

    def _put_result(self, step: SupportsIndex | None) -> None:
        """As a last set, of copies: the files stay where they are, so what hinders it does not hinder `finish`. If
        there is nothing new since the last set, that is the result."""
        at, there = self._ranks.together(lambda: self._before_finish(step))
        moving, listed = any(entry.kind == "move" for entry in self._home.manifest.entries), self._home.manifest
        written = any(item.kind == "move" or not moving for item in there.items) or bool(there.opened)
        self._missed("")
        if self._nodes and self._ranks.least(-self._ranks.together(self._is_more_here), -written) == (-1, 0):
            self._missed(
                "files were written after the last set, or have new rows, which the place would lack: hide them"
            )
            return
        try:
            if self._peers.least(-written, -(at is not None)) == (-1, 0):
                self._missed("it has no step: finish(step=…) puts it there")
                return
            if self._peers.least(-written) != (0,):
                self._home.manifest = listed.in_place()
                Verbs.hide.__wrapped__(self, step, wait=True)  # type: ignore[attr-defined]
            self._wait_for(REMOTE, None)
        except SafepointError as error:
            self._missed(str(error))
        finally:
            self._home.manifest = listed

    def _is_more_here(self) -> bool:
        """Whether a listed file is in place that the last set does not have as it is."""
        root, last = self._root, self._committed
        with root.reporting(SaveError, "not finished", "nothing was changed"):
            known = {f.path: f for f in last.files} if last else {}
            for path in baseline.files_in_place(root, self._home.manifest) if self._home.active else ():
                info, had = stat_or_none(root.disk, os.path.join(root.work, path)), known.get(path)
                same = had and info and info.st_size == had.size
                if info and not (same and had and (had.kind == "append" or info.st_mtime_ns == had.mtime_ns)):
                    return True
        return False

    def _missed(self, why: str) -> None:
        if self._beside:
            self._beside.missed = why

    def _wait_for(self, level: int, until: float | None) -> None:
        if self._nodes:
            # What was in flight is stored by now: of all ranks, if they name the same.
            newest = low_high(self._committed.number if self._committed else 0, self._home.active)
            least, most = self._peers.least(*newest)
            self._agreed = max(self._agreed, least) if least == -most else self._agreed
            asked = self._nodes.copy_now(self._agreed) if level == PARTNER else None
            if asked or (level == REMOTE and self._agreed):
                self._wait_in_steps(self._nodes.waiting(level, self._agreed, until))
            if asked:
                self._nodes.copied(asked)
            return

        def work() -> None:
            if self._beside:
                self._beside.wait_for(self._committed, until)

        self._peers.together(work)

    def _wait_in_steps(self, steps: Iterator[None]) -> None:
        """Until the steps of all ranks have ended. What hinders one ends the waiting of all. Collective."""
        failure: BaseException | None = None
        mine = others = True  # there is still to wait
        while others:
            end = time.monotonic() + STEP
            try:
                while mine and time.monotonic() < end:
                    mine = next(steps, END) is not END
                    time.sleep(POLL if mine else 0)
            except BaseException as error:
                failure = error
            failed, waits = self._peers.least(-(failure is not None), -mine)
            if failed:
                self._peers.fail_together(failure)
            others = bool(waits)

    def adopt(self) -> SavePoint | None:
        """As `Verbs.adopt`. `UsageError` with the setting `local`: no process stays that could look after the nodes."""
        if self._nodes:
            raise UsageError("local is for a program that stays, not for commands of a job script; nothing was changed")
        return super().adopt()

    @property
    def safe(self) -> dict[str, int | None]:
        """The step of the newest set that survives a power cut here ("local"), of the newest one that is on the disks
        of two nodes ("partner", with the setting `local`), and of the newest one at the place of the setting `remote`,
        as far as this rank knows; None if it knows of none. No communication."""
        last, local = self._committed, None
        if last and (self._peers.size == 1 or last.number <= self._agreed):
            local = last.step
        elif last and self._agreed:  # the others may not yet have the last one
            with contextlib.suppress(Damaged, OSError):
                local = read_record(self._root, self._agreed).step
        remote = self._beside.remote_step if self._beside else None
        return {"local": local, **({"partner": self._nodes.copied_step} if self._nodes else {}), "remote": remote}


def _patience(timeout: float | None) -> int:
    """Milliseconds. Raises `UsageError`."""
    if timeout is None:
        return LARGEST
    if not isinstance(timeout, (int, float)) or not 0 <= timeout < 1e9:  # not a number is neither
        raise UsageError(f"wait: timeout must be a number of seconds, not {timeout!r:.100}; nothing was changed")
    return int(timeout * 1000)
