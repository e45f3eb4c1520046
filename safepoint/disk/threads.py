"""Several things at once, by helper threads that stay."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from safepoint.disk import signals
from safepoint.disk.kernel import SyncFailed

AT_ONCE = 8  # fsyncs in flight: the journal commits of a batch are shared, see docs/design.md

Item = TypeVar("Item")
Result = TypeVar("Result")


class Helpers:
    """The threads of one disk."""

    _pool: tuple[int, ThreadPoolExecutor | None] = 0, None  # of the process with this id

    def each(self, work: Callable[[Item], Result], items: Sequence[Item], at_once: int = AT_ONCE) -> list[Result]:
        """Do `work` for all items, several at once; the results in their order. After an error no further item is
        started. When the running ones have ended, the error of the first item is raised; a failed fsync goes before all
        others. In the main thread signals wait until then; after Ctrl-C no further item is started."""
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}
        numbers = itertools.count()  # atomic, so the threads need no lock

        def run() -> None:
            with signals.working_for(block):
                while not errors and (number := next(numbers)) < len(items):
                    try:
                        signals.look()
                        results[number] = work(items[number])
                    except BaseException as error:  # raised below
                        errors[number] = error

        with signals.Block() as held, contextlib.ExitStack() as ended:
            block = signals.block()
            for _ in range(min(len(items), at_once) - 1):
                self._submit(run, ended)
            run()
        _raise_first([errors[number] for number in sorted(errors)], held)
        return [results[number] for number in range(len(items))]

    @contextlib.contextmanager
    def beside(self, work: Callable[[], object]) -> Iterator[None]:
        """Let a helper do this work while the block runs; on leaving it has ended. Its error is raised before one of
        the block, and signals wait, as in `each`."""
        errors: list[BaseException] = []

        def run() -> None:
            with signals.working_for(block):
                try:
                    work()
                except BaseException as error:  # raised below
                    errors.append(error)

        of_block: BaseException | None = None
        with signals.Block() as held, contextlib.ExitStack() as ended:
            block = signals.block()
            self._submit(run, ended)
            try:
                yield
            except BaseException as error:
                of_block = error
        if isinstance(of_block, KeyboardInterrupt) and isinstance(next(iter(errors), of_block), KeyboardInterrupt):
            errors = []  # one Ctrl-C, seen here and there
        _raise_first([*errors, *([of_block] if of_block else [])], held)

    def _submit(self, run: Callable[[], None], ended: contextlib.ExitStack) -> None:
        """Let a helper thread do this; at the end of that stack its end is waited for. If no helper has come to it by
        then, it is done there: all of them may be busy, or there are none to be had."""
        taken, done = threading.Lock(), threading.Event()

        def once() -> None:
            if taken.acquire(blocking=False):
                try:
                    run()
                finally:
                    done.set()

        ended.callback(done.wait)
        ended.callback(once)
        try:
            self._threads().submit(once)
        except RuntimeError:  # no thread to be had: a limit, or the interpreter is about to end
            self.dismiss()

    def _threads(self) -> ThreadPoolExecutor:
        """They stay: to start a thread takes longer than to wake one, as it is waited for until it runs. A forked child
        has none of its parent's, whose locks may be taken for ever."""
        pid, pool = self._pool
        if pid != os.getpid() or pool is None:
            pool = ThreadPoolExecutor(AT_ONCE, "safepoint-disk")
            self._pool = os.getpid(), pool
        return pool

    def dismiss(self, *, wait: bool = False) -> None:
        """No helper is left, when they have ended what they do; with `wait` on return, as a fork may come next, and
        Python warns of each if there is another thread. They may be used again."""
        (pid, pool), self._pool = self._pool, (0, None)
        if pool is not None and pid == os.getpid():
            pool.shutdown(wait=wait)


def _raise_first(errors: Sequence[BaseException], held: signals.Block) -> None:
    """The first of these errors, or what a handler has raised meanwhile. A failed fsync counts more than all others:
    who has called must remember it."""
    for error in sorted(errors, key=lambda error: not isinstance(error, SyncFailed))[:1]:
        if isinstance(error, SyncFailed) or not held.raised:
            raise error
    signals.raise_all(held.raised)
