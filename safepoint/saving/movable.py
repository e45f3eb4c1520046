"""What can be moved out of W and put back, or copied and replaced; and where the links in a directory lead."""

from __future__ import annotations

import errno
import os

from safepoint.disk import kernel
from safepoint.disk.files import lacks, mount_point
from safepoint.errors import RefusedFileError
from safepoint.patterns import follows
from safepoint.root import Root


def refuse_mount(root: Root, path: str, device: int) -> None:
    """Refuse what no rename could move. (In an overlay files have other devices than their directories.)"""
    full = os.path.join(root.work, path)
    directory = os.path.dirname(full)
    other = root.disk.page_cache(directory).mount != root.disk.page_cache(root.work).mount
    if other or root.disk.stat(directory).st_dev != device or kernel.is_mount(full):
        raise other_mount_error(path, full, root.work)


def refuse_fixed(root: Root, path: str, *, tree: bool) -> None:
    """Refuse what can be copied, but not replaced by a restart. (What is moved shows by that that it can be.)"""
    full = os.path.join(root.work, path)
    if kernel.is_mount(full):
        raise RefusedFileError(
            f"{path} is where something is mounted, so restore could put nothing else in its place: list the "
            f"files in it, or mount the directory above it"
        )
    closed = [way for way in (os.path.dirname(full), full)[: 1 + tree] if lacks(way, os.W_OK | os.X_OK)]
    if closed and not (closed == [full] and root.disk.stat(full).st_uid == os.geteuid()):  # who may open it
        raise RefusedFileError(
            f"{path} can be copied, but restore could put nothing else in its place: this process can change no "
            f"names in {closed[0]} (its permissions, or a mount that is read-only)"
        )


def from_work(root: Root, path: str, target: str) -> str:
    """The target of a link at this path: if it is the address of what is in W, by whatever way, from the link."""
    words = target.split("/")
    for end in range(2, len(words) + 1) if os.path.isabs(target) else ():
        if os.path.realpath("/".join(words[:end])) == root.work:
            inner, way = "/".join(words[end:]) or ".", os.path.dirname(path)
            plain = ".." not in inner.split("/")
            return os.path.relpath(inner, way or ".") if plain else f"{'../' * path.count('/')}{inner}"
    return target


def link_inside(root: Root, path: str, full: str, top: str) -> str:
    """Where a symbolic link in a listed directory points to; in place of an absolute address in that directory, from
    where the link is: a set may be given back elsewhere. Raises `RefusedFileError` if it leads outside."""
    tree = path[: len(path) - len(full[len(top) :])]

    def link_at(way: str) -> str | None:
        try:
            return from_work(root, way, os.readlink(f"{top}{way[len(tree) :]}"))
        except OSError:  # no link
            return None

    target = from_work(root, path, os.readlink(full))
    if not follows(path, target, tree, link_at):
        raise RefusedFileError(f"{path} is a symbolic link that leads out of its directory, to {os.readlink(full)}")
    return target


def other_mount_error(path: str, full: str, work: str) -> RefusedFileError:
    """Why no rename can move what is at `full` to another directory of `work`, as far as that can be seen."""
    here, there = mount_point(full), mount_point(work)
    if here != there:
        other = "mount of its file system" if os.lstat(here).st_dev == os.lstat(there).st_dev else "file system"
        return RefusedFileError(
            f"{path} is on another {other} (the one mounted at {here}) than its directory (the one mounted at "
            f"{there}): a rename cannot move it; save it from a directory there"
        )
    why = "an overlay moves no directory of the image below it" if kernel.file_system(full) == "overlay" else ""
    why = why or "the file system says so, though both are in one mount; directories of two quota projects are such"
    what = f"{path} cannot be moved out of its directory by a rename ({os.strerror(errno.EXDEV)}: {why})"
    return RefusedFileError(f"{what}: list it as copy, which needs no rename")
