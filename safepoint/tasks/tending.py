"""What a driver does beside running: verify all that is kept, forget, clean."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from safepoint.disk import kernel
from safepoint.disk.files import read
from safepoint.errors import UsageError
from safepoint.tasks import journal, kept, moving, names, put, values
from safepoint.tasks.jobs import Place, Record
from safepoint.tasks.saved import Damage, Kept, read_block

if TYPE_CHECKING:
    from safepoint.tasks.saved import Store

COARSE_S = 2.0  # so much later than by our clock a file may be by that of its file system


def verify(store: Store) -> Iterator[Damage]:
    """See `Store.verify`."""
    for name in store.journals():
        try:
            for block in journal.blocks(store.disk, f"{store.directory}/{name}"):
                yield from _wrong_block(name, block)
        except OSError as error:
            yield Damage(name, 0, "", "", f"cannot be read: {_cause(error)}")
    for key in store.done():
        yield from _wrong_directory(store, key)


def _wrong_block(name: str, block: journal.Block) -> Iterator[Damage]:
    if block.record is None:
        length = block.end - block.offset
        what = f"{length} bytes at the end are no whole block" if block.torn else f"{length} bytes are no whole block"
        yield Damage(name, block.offset, "", "", what, block.torn)
        return
    try:
        found = read_block(block.record, Place(name, block.offset))
    except kept.Strange as error:
        yield Damage(name, block.offset, "", "", f"no record: {error}")
        return
    if not isinstance(found, Kept):
        return
    record, at = found.record, 0
    for output in record.outputs if record.kept else ():
        data = block.data[at : at + output.nbytes]
        at += output.nbytes
        if values.digest_bytes(data) != output.digest:
            yield Damage(name, block.offset, record.vertex, record.key, f"output {output.name!r} has other bytes")


def _wrong_directory(store: Store, key: str) -> Iterator[Damage]:
    top = f"{names.DONE}/{key}"
    path = f"{store.directory}/{top}"
    try:
        record = kept.unsealed(read(store.disk, f"{path}/{names.RECORD}"), key)
    except (OSError, kept.Strange) as error:
        yield Damage(f"{top}/{names.RECORD}", 0, "", key, _cause(error))
        return
    for output in record.outputs:
        try:
            digest, _ = values.digest_file(store.disk, f"{path}/{output.file}")
            what = "" if digest == output.digest else "has other bytes than were kept"
        except (OSError, UsageError) as error:
            what = _cause(error)
        if what:
            yield Damage(f"{top}/{output.file}", 0, record.vertex, key, what)


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def forget(store: Store, found: Sequence[Kept]) -> list[Kept]:
    """Take these records back. Those in journals by one block that names them: whole, or a kill made it count for
    nothing. Those in `done/` by a rename each."""
    places = [each.at for each in found if each.at.journal]
    if places:
        store.own().take_back(places)
        store.own().flush()  # else a power cut could bring back what the user was told is forgotten
    keys = sorted({each.record.key for each in found if not each.at.journal})
    if keys:
        moving.hide(store.disk, store.directory, names.DONE, keys)
    return list(found)


def clean(store: Store, before: float | None, used: Collection[str] | None) -> list[Record]:
    """See `Store.clean`."""
    in_use = used_by_last(store, before is not None) if used is None else lambda record: record.key in used
    store.end_own()  # it may have taken something back, in a journal that is to go
    counts = store.kept(strict=True)
    stay = {
        key: each for key, each in counts.items()
        if in_use(each.record) or (before is not None and each.record.time >= before)
    }  # fmt: skip
    old = [name for name in store.journals() if not _is_written(name)]
    staying = {(each.at.journal, each.at.offset) for each in stay.values()}
    others = {each.at.journal for each in store.all(strict=True) if each.at.journal} - set(old)
    back = [each.at for each in store.all(strict=True) if each.at.journal in others and each.record.key not in stay]
    _rewrite(store, old, staying, back)
    gone = [each for key, each in counts.items() if key not in stay]
    if keys := [key for key in store.done() if key not in stay or stay[key].at.journal]:
        moving.hide(store.disk, store.directory, names.DONE, keys)
    return [each.record for each in gone]


def used_by_last(store: Store, without: bool) -> Callable[[Record], bool]:
    """Whether the last graph that was run here uses a result. If that run was killed, graph.json knows nothing of what
    it made: then what its vertices have made since stays, and all that is of those without an identity."""
    path = f"{store.directory}/graph.json"
    try:
        content = json.loads(read(store.disk, path))
        since = math.inf if content.get("over") else store.disk.stat(path).st_mtime - COARSE_S
        keys = {str(vertex["name"]): str(vertex.get("key") or "") for vertex in content["vertices"]}
    except FileNotFoundError as error:
        if without:
            return lambda record: False
        raise UsageError(f"{store.directory} does not tell which graph was run last; nothing was removed") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = f"{store.directory}/graph.json cannot be read ({error}), so what is in use is not known"
        raise UsageError(f"{text}; nothing was removed") from error
    used = set(keys.values())

    def stays(record: Record) -> bool:
        return record.key in used or keys.get(record.vertex) == "" or (record.vertex in keys and record.time >= since)

    return stays


def _is_written(name: str) -> bool:
    """Whether a process of this host that has this journal is there still: it may append to it."""
    host, pid = names.process(name)
    return names.is_mine(host) and (put.in_use(name) if pid == os.getpid() else kernel.is_alive(pid))


def _rewrite(store: Store, old: Sequence[str], stay: set[tuple[str, int]], back: list[Place]) -> None:
    """Put the blocks that stay into a new journal, and remove the old ones. Killed at any point, each block that stays
    is in one of them at least, and twice is not too much: both are the same record. `back`: blocks of journals to
    which a process appends still, so that they are only taken back."""
    if not old and not back:
        return
    writer = store.own()
    took: list[str] = []
    alive = set(store.journals()) - set(old)
    for name in old:
        for block in journal.blocks(store.disk, f"{store.directory}/{name}"):
            if block.record is None:
                continue
            if (name, block.offset) in stay:
                writer.put_again(block.record, block.data)
            elif b'"forgotten"' in block.record[:16]:
                took.append(name)
                with contextlib.suppress(kept.Strange):
                    named = kept.taken_back(kept.loaded(block.record))
                    back += [Place(*each) for each in named if each[0] in alive]
    if back:
        writer.take_back(back)
    writer.flush()  # before the old ones go: else a power cut could leave neither
    for name in old:
        if name not in took:
            store.disk.remove(f"{store.directory}/{name}")
    # Before those that take blocks back: else a power cut could leave the blocks and not what takes them back.
    store.disk.sync_dir(store.directory)
    for name in dict.fromkeys(took):
        store.disk.remove(f"{store.directory}/{name}")
    store.disk.sync_dir(store.directory)  # else a power cut could bring back what was removed
