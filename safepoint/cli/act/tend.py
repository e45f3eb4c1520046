"""`safepoint tend`: what a run with the setting `local` starts beside itself on each node. Not for people."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial

import click

from safepoint import words
from safepoint.cli import terminal
from safepoint.cli.act.node_orders import NodeOrders
from safepoint.cli.act.putting import manifest_text
from safepoint.disk import kernel
from safepoint.disk.files import exists
from safepoint.errors import SafepointError
from safepoint.manifest import load
from safepoint.nodes import parity
from safepoint.nodes.copying import FATAL, LOST, RETRIED, AtRemote, Superseded, Wanted, copy, trouble
from safepoint.nodes.giving import Server
from safepoint.nodes.held import drop_older
from safepoint.nodes.line import Lines
from safepoint.nodes.listening import Listening
from safepoint.nodes.marker import read_marker
from safepoint.nodes.nearby import held_ranks
from safepoint.nodes.transfer import Peer, listening_address
from safepoint.program import SETTINGS
from safepoint.ranks import LARGEST
from safepoint.record import key
from safepoint.root import Root, roots
from safepoint.tiers import note
from safepoint.tiers.place import place_at
from safepoint.tiers.sending import Rate

DISK = terminal.DISK
PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two tries
TOLD_AFTER = 2  # tries for a set that fail; the first may meet a disk that stalls
CLEAN_AGAIN = 5.0  # seconds until what could not be removed is tried again
AFTER = 3600.0  # seconds that sets are put after the program has ended
LINGER = 5.0  # and for which other nodes are heard, which may be copying
OTHERS = 600.0  # that the parts of others are waited for
TICK, LOOK_EVERY = 0.2, 2.0


class Tender:
    """One node of one run."""

    def __init__(self, orders: NodeOrders, start: Root, one: Root, lines: Lines, life: int, limit: float) -> None:
        """`one`: any root of W; `lines`: of the ranks that run here. `limit`: `stall_timeout`."""
        self._limit = limit
        self._orders, self._start, self._one, self._lines, self._life = orders, start, one, lines, life
        self._roots = lines.roots
        self._floor: Callable[[], int] = lambda: LARGEST  # below this no parity stays
        self._ended = self._looked = self._clean_at = 0.0
        self._next_life = False
        self._copied = self._gone = self._dropped = ""
        self._copier = threading.Thread(target=self._guarded, args=(self._copy_all,), name="safepoint-copy")
        self._copier.daemon = True

    def run(self, listening: Listening, place: AtRemote) -> None:
        """Until the program has ended, and what it and other nodes had asked for is done. The next life has a process
        of its own, which listens elsewhere."""
        self._orders.kept, self._floor = listening.keep, listening.parity_floor
        self._copier.start()
        self._put_all(place)
        self._copier.join()
        until = time.monotonic() + LINGER
        while listening.busy or time.monotonic() < until:
            time.sleep(TICK)
        listening.end()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # a thread that dies in silence would copy nothing any more
            traceback.print_exc()
            # End the process too: without this thread it would make no copies. The run warns, and starts a new one.
            self._log(f"the process beside the run failed: {type(error).__name__}: {error}")
            os._exit(1)

    @property
    def _over(self) -> bool:
        """The program has ended, or the next one is at work."""
        if self._orders.over and not self._ended:
            self._ended = time.monotonic()
        return bool(self._ended)

    @property
    def _superseded(self) -> bool:
        """The next life has begun, and has a process of its own."""
        if self._ended and not self._next_life and time.monotonic() > self._looked + LOOK_EVERY:
            self._looked = time.monotonic()
            with contextlib.suppress(SafepointError, OSError):
                marker = read_marker(self._start)
                self._next_life = marker is not None and marker.life > max(self._life, self._orders.life)
        return self._next_life

    @property
    def _late(self) -> bool:
        return bool(self._ended) and (time.monotonic() > self._ended + AFTER or self._superseded)

    @property
    def _gives_up(self) -> bool:
        """After a job was told to end nothing is tried again."""
        return bool(self._ended) and (self._late or self._orders.told_to_end)

    # To the partner.

    def _copy_all(self) -> None:
        pause, failed, last = PAUSE, 0, ""
        while True:
            with self._orders.came:
                self._orders.came.wait_for(self._new, TICK)
                wanted, over = self._orders.to_copy, self._over
                told = self._orders.partner or self._orders.group
            with contextlib.suppress(OSError):  # it is space
                self._clean(over)
            if self._orders.repeat:  # what was said was not heard, or it is to be tried again
                self._orders.repeat, self._gone = False, ""
                if wanted == self._copied:
                    self._orders.say("copied", wanted)
            if not wanted or wanted in (self._copied, self._gone) or told is None:
                if over:
                    return
                continue
            why = self._copy(wanted)
            if why is None:
                self._orders.awaits("copy", "")
                pause, failed, last = PAUSE, 0, ""
                continue
            if self._over:  # the partner ends too
                return
            failed = failed + 1 if wanted == last else 1
            last = wanted
            if failed == 1:
                self._log(f"{why}; it is tried again")
            if failed >= TOLD_AFTER:
                self._orders.say("uncopied", wanted, why)
            else:
                pause = PAUSE
            with self._orders.came:
                self._orders.came.wait_for(lambda wanted=wanted: self._orders.to_copy != wanted, pause)  # type: ignore[misc]
            pause = min(2 * pause, LONGEST_PAUSE)

    def _new(self) -> bool:
        orders = self._orders
        return orders.to_copy not in (self._copied, self._gone) or orders.over or orders.repeat

    def _copy(self, identity: str) -> str | None:
        """Why not; None: it is there, or is not wanted any more."""
        until = [0.0]

        def still() -> bool:
            if self._over:  # what is committed goes; what is not will not be
                until[0] = until[0] or time.monotonic() + LINGER
            return self._orders.to_copy == identity and not (until[0] and time.monotonic() > until[0])

        try:
            self._to_others(Wanted(identity, still, partial(self._orders.awaits, "copy")))
        except Superseded:
            self._gone = identity if self._over else self._gone
        except LOST:
            self._gone = identity
            self._orders.say("lost", identity)
        except RETRIED as error:
            return trouble(error)
        else:
            self._copied = identity
            self._orders.say("copied", identity)
        return None

    def _to_others(self, wanted: Wanted) -> None:
        """As `copy`, or `parity.make`."""
        orders, moves = self._orders, partial(self._moves, "copy")
        if orders.partner:
            copy(self._roots, Peer(*orders.partner, orders.key, self._limit), wanted, moves)
        elif orders.group:
            at, life, nodes = orders.group
            group = parity.Group(at, life, tuple(Peer(*node, orders.key, self._limit) for node in nodes))
            parity.make(self._one, self._lines, group, wanted, self._floor, moves)

    def _moves(self, which: str, count: int) -> None:
        self._orders.moves(which if count else "")

    def _clean(self, over: bool) -> None:
        """Copies, and sets of ranks that ran here before, that are older than what is to be kept. After the end of the
        program only if it is finished: the next life may go back to what is older."""
        keep, forget = self._orders.keep, self._orders.forget
        if over and not forget:
            return
        if (forget or keep) and f"{keep} {forget}" != self._dropped and time.monotonic() > self._clean_at:
            life, number = tuple(map(int, keep.split("-")[:2])) if keep else (0, 0)
            floor = key(forget + 1, 0) if forget else key(life, number)  # what the next life puts there stays
            root = self._one
            old = [root.of(other.rank) for other in roots(DISK, root.work)[0] if other.rank not in self._roots]
            old += [root.held(rank) for rank in held_ranks(root)]
            gone = [drop_older(each, floor) for each in old]
            gone.append(parity.drop_older(root, floor, self._orders.group[1] if self._orders.group else 0))
            if all(gone):
                self._dropped = f"{keep} {forget}"
            else:
                self._clean_at = time.monotonic() + CLEAN_AGAIN

    # To the remote place.

    def _put_all(self, place: AtRemote) -> None:
        orders, pause, told, asked = self._orders, PAUSE, False, None
        waits, moves = partial(orders.awaits, "place"), partial(self._moves, "place")
        while True:
            over = self._over
            asked = orders.taken() or asked
            if asked is None:
                waits("")
                if over and self._put_last(place):
                    return
                orders.pause(PAUSE)
                continue
            request = asked
            still = partial(self._is_wanted, request.identity)
            try:
                waits(place.url)
                place.put(self._roots, Wanted(request.identity, still, waits), moves, back=request.back)
            except Superseded:
                asked = None if self._over else asked
                continue
            except FATAL as error:
                orders.say("over", str(error))
                orders.answer(request, str(error))
                return
            except LOST as error:
                orders.say("lost", request.identity)
                orders.answer(request, str(error))
                asked = None
            except (*RETRIED, SafepointError) as error:
                place.forget()
                if not told:
                    self._log(f"{error}; it is tried again")
                    orders.say("trouble", trouble(error))
                    told = True
                orders.answer(request, trouble(error))
                if self._gives_up:
                    return
                orders.pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if told:
                    orders.say("fine")
                told, pause, asked = False, PAUSE, None
                orders.say("there", request.identity)
                orders.answer(request, "")

    def _put_last(self, place: AtRemote) -> bool:
        """The newest set that all nodes have, now that the program has ended. Whether there is no more to do."""
        until = time.monotonic() + OTHERS
        try:
            mine = list(self._roots.values())
            place.put_last(
                mine, lambda: not self._late and time.monotonic() < until, self._while_no_next_life
            )  # fmt: skip
        except FATAL:
            return True
        except Superseded as error:  # without a word the next life is at work, or the place was never claimed
            if str(error):
                self._log(str(error))
            return True
        except LOST as error:
            self._log(trouble(error))
            return True
        except (*RETRIED, SafepointError) as error:
            place.forget()
            self._log(f"{error}; it is tried again")
            return self._gives_up
        return True

    def _while_no_next_life(self, count: int) -> None:
        self._moves("place", count)
        if self._superseded:
            raise Superseded

    def _is_wanted(self, identity: str) -> bool:
        """Until another one is; after the end of the program as long as its parts can be expected."""
        if self._late or (self._ended and time.monotonic() > self._ended + LINGER and not self._all_here(identity)):
            return False
        waiting = self._orders.waiting()
        return waiting is None or waiting == identity

    def _all_here(self, identity: str) -> bool:
        number = int(identity.split("-")[1])
        return all(exists(DISK, root.record(number)) for root in self._roots.values())

    def _log(self, text: str) -> None:
        click.echo(f"safepoint: {words.moment(time.time())} {text}", err=True)


@click.command(hidden=True)
@click.option("--pid", type=int, required=True)
@click.option("--of", "size", type=int, required=True)
@click.option("--saver", type=int, required=True)
@click.option("--ranks", required=True)
@click.option("--life", type=int, required=True)
@click.option("--to", required=True)
@click.option("--port", type=int, required=True)
@click.option("--lead", is_flag=True)
@click.option("--one-host", is_flag=True)
@click.argument("start")
@click.argument("work")
def tend(
    pid: int, size: int, saver: int, ranks: str, life: int, to: str, port: int, lead: bool, one_host: bool,
    start: str, work: str,
) -> None:  # fmt: skip
    """Beside a run whose files are on disks of its nodes: give and hold parts of sets, and put them elsewhere."""
    orders = NodeOrders()
    began = kernel.began(pid)
    while not orders.secret.wait(TICK):
        if orders.over or kernel.began(pid) != began:
            return
    settings = load(start, SETTINGS).settings
    one = Root(work, 0, size, saver, DISK)
    mine = {rank: one.of(rank) for rank in map(int, ranks.split(",")) if exists(DISK, one.of(rank).path)}
    home = Root(start, 0, size, saver, DISK)
    fresh = lead and not note.read_notes(home).at(to).sets
    place = AtRemote(
        home, to, lambda: place_at(to, DISK, start, make=fresh), Rate(settings["drain_rate"]),
        lambda: manifest_text(start), lead=lead, keep=settings["remote_keep"],
    )  # fmt: skip
    lines = Lines(mine)
    limit = settings["stall_timeout"]
    make = partial(Server, one, orders.key, listening_address(one_host=one_host), port, place, lines, limit)
    listening = Listening(partial(orders.say, "deaf"), partial(orders.say, "ready"), make)
    try:
        listening.begin(again=port > 0)
    except OSError as error:
        orders.say("over", f"cannot listen: {error.strerror or error}")
        return
    threading.Thread(target=_watch, args=(orders, pid, began), daemon=True).start()
    Tender(orders, home, one, lines, life, limit).run(listening, place)


def _watch(orders: NodeOrders, pid: int, began: int | None) -> None:
    """The pipe may be open in a child of the program, when it has ended."""
    while kernel.began(pid) == began and not orders.over:
        time.sleep(1)
    with orders.came:
        orders.over = True
        orders.came.notify_all()
