"""What was there before the first set: the initial files, which a run that never had a set starts from again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from stat import S_ISDIR
from typing import Any

from safepoint import companions
from safepoint.disk.files import exists, listdir, read
from safepoint.errors import DamagedError, OverwrittenError
from safepoint.manifest import Manifest
from safepoint.patterns import excluded
from safepoint.record import parse_baseline
from safepoint.restoring.read import Damaged, or_damaged
from safepoint.restoring.swap import Touched, clear_discarded, cut
from safepoint.root import Root
from safepoint.saving import back, contents
from safepoint.sealed import seal, write_durably


def refuse_outside(root: Root, manifest: Manifest) -> None:
    """Raise `RefusedFileError` if an entry reaches, by a symbolic link, what is outside of W: it is none of ours."""
    reach = manifest.reach(root.work, root.disk.stat, root.rank, root.ranks, listdir=partial(listdir, root.disk))
    root.guard(f"{path}/" for path in reach)


def note_baseline(root: Root, manifest: Manifest) -> None:
    """Write down what exists before the program writes its first file; on return that is durable."""
    rows = [
        {"path": path, "size": info.st_size, "mtime_ns": info.st_mtime_ns, "inode": info.st_ino,
         "directory": S_ISDIR(info.st_mode)}
        for path, info in {**in_place(root, manifest), **companions.orphans(root, manifest)}.items()
    ]  # fmt: skip
    whose = {"ranks": root.ranks, "saver": root.saver, "patterns": manifest.patterns}
    write_durably(root.disk, root.baseline, seal({**whose, "files": rows}))


def files_in_place(root: Root, manifest: Manifest) -> dict[str, os.stat_result]:
    """Every listed file that exists in W, those inside of listed directories one by one."""
    return {path: info for path, info in in_place(root, manifest).items() if not S_ISDIR(info.st_mode)}


def in_place(root: Root, manifest: Manifest, *, locks: bool = False) -> dict[str, os.stat_result]:
    """Every listed file and directory that exists in W, and all that is inside of these directories, each after what
    holds it; of an excluded directory only itself. And what belongs to them (`companions`), with `locks` all of it."""
    found: dict[str, os.stat_result] = {}
    without = manifest.without(root.rank, root.ranks)

    def visit(path: str, info: os.stat_result) -> None:
        found[path] = info
        into = S_ISDIR(info.st_mode) and not excluded(without, path)
        for name in listdir(root.disk, os.path.join(root.work, path)) if into else ():
            visit(f"{path}/{name}", root.disk.stat(os.path.join(root.work, path, name)))

    listed, _ = manifest.find(root.work, root.disk.stat, root.rank, root.ranks, listdir=partial(listdir, root.disk))
    companions.add(root, manifest, listed, locks=locks)
    for path, match in listed.items():
        visit(path, match.info)
    return found


def read_baseline(root: Root) -> dict[str, Any]:
    try:
        with or_damaged(root.baseline):
            return parse_baseline(read(root.disk, root.baseline))
    except Damaged as error:
        raise DamagedError(
            f"{root.shown(root.baseline)} is damaged ({error}), so torn first files cannot be told from initial ones: "
            f"check the listed files, then remove it"
        ) from error


def check_baseline(root: Root, manifest: Manifest) -> list[str]:
    """Without any set: set aside the torn first files of a run that died before its first `hide`; their names.

    Initial files that are as they were stay; one that only grew, and is listed as append, is cut back; a directory is
    made again. Raises `OverwrittenError` if another has changed, since nothing could bring it back.
    """
    torn, grown = judge_baseline(root, manifest)
    there = {name: root.disk.stat(os.path.join(root.work, name)) for name in grown}
    linked = any(info.st_nlink > 1 for info in there.values())
    if (torn or linked) and not exists(root.disk, root.stage):  # else `give_up` has done so
        clear_discarded(root)
        # As there: killed, or cut, while it sets aside, the next restore must not clear what this one has.
        root.disk.mkdir(root.stage, root.mode)
        root.disk.sync_dir(root.path)
    for name, size in grown.items():
        cut(root, name, size, there[name])
    for name in torn:
        back.set_aside(root, name)
    without = manifest.without(root.rank, root.ranks)
    for row in read_baseline(root)["files"]:
        if excluded(without, row["path"]):
            continue
        if row.get("directory") and not exists(root.disk, os.path.join(root.work, row["path"])):
            contents.make_parents(root.disk, f"{root.work}/{row['path']}/-", root.work, 0o777)
    return torn


def judge_baseline(root: Root, manifest: Manifest) -> tuple[list[str], dict[str, int]]:
    """The torn first files, directories that were made for them as a whole; and the initial ones that only grew, with
    the size they had. Nothing is changed.

    Raises `OverwrittenError` as `check_baseline`. Each rank judges what it owned when the baseline was written, since
    the saver, or the number of ranks, may have changed.
    """
    baseline = read_baseline(root)
    before = {row["path"]: row for row in baseline["files"]}
    then, judged, now = _as_of(baseline, root, manifest)
    torn = [name for name in now if name not in before]
    growing = {entry.filled(then.rank, then.ranks) for entry in judged.entries if entry.kind == "append"}
    grown, without = {}, judged.without(then.rank, then.ranks)
    for name, row in before.items():
        path = os.path.join(root.work, name)
        info = now.get(name) or (root.disk.stat(path) if exists(root.disk, path) else None)  # perhaps no longer listed
        if row.get("directory") and (not info or S_ISDIR(info.st_mode)):
            continue
        if excluded(without, name):
            continue
        if info and name in growing and info.st_ino == row["inode"] and info.st_size > row["size"]:
            grown[name] = row["size"]
        elif not info or (info.st_size, info.st_mtime_ns) != (row["size"], row["mtime_ns"]):
            owners = {each.of for each in companions.owners(name)}
            if owners and owners.isdisjoint(before) and not judged.decides(name, then.rank, then.ranks):
                torn += [name] if info else []  # a log without its file has become one of the lost life
                continue
            raise OverwrittenError(
                f"{name} was there at the first start and {'was changed' if info else 'is gone'} before the first set "
                f"was saved, so the run cannot start again from it: put the initial file back; or, if all is as it "
                f"should be, remove {root.shown(root.baseline)}"
            )
    return [name for name in torn if os.path.dirname(name) not in torn], grown


def _as_of(
    baseline: dict[str, Any], root: Root, manifest: Manifest
) -> tuple[Root, Manifest, dict[str, os.stat_result]]:
    """Rank and entries as they were when this was noted, and what these mean in W now."""
    then = Root(root.work, root.rank, baseline["ranks"], baseline["saver"], root.disk)
    judged = manifest.owned_by(then.rank, then.ranks, then.saver).as_of(baseline["patterns"])
    now = {**in_place(then, judged, locks=True), **companions.orphans(then, judged)}
    if baseline["format"] == 1:  # it knows nothing of directories
        now = {name: info for name, info in now.items() if not S_ISDIR(info.st_mode)}
    return then, judged, now


def touched(root: Root, manifest: Manifest) -> Iterator[Touched]:
    """What a start from the initial files is going to set aside or cut: all that is not as it was at the first one."""
    try:
        baseline = read_baseline(root)
    except DamagedError:  # `check_baseline` tells it
        return
    before = {row["path"]: row for row in baseline["files"]}
    then, judged, now = _as_of(baseline, root, manifest)
    for path, info in now.items():
        row, entry = before.get(path), judged.decides(path, then.rank, then.ranks)
        if row is None or not (
            row.get("directory") or (info.st_size, info.st_mtime_ns) == (row["size"], row["mtime_ns"])
        ):
            cut_to = row and entry and entry.kind == "append" and info.st_ino == row["inode"] and info.st_nlink == 1
            yield path, info, row["size"] if row and cut_to else None


def renew_baseline(root: Root, manifest: Manifest) -> None:
    """When all ranks have judged by theirs: note what now is listed, and by whom, if that has changed."""
    if exists(root.disk, root.baseline):
        noted = read_baseline(root)
        if (noted["ranks"], noted["saver"], tuple(noted["patterns"])) != (root.ranks, root.saver, manifest.patterns):
            note_baseline(root, manifest)
