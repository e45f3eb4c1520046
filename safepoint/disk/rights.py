"""Who may read a copy of a file: nobody who may not read the file."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys

# Modes of what is made, of which the umask takes its part. OURS: for a copy of a file, until it has the mode of that.
ANYBODY, OURS = 0o666, 0o600
PRIVATE, SHARED = 0o700, 0o770  # of directories
ACL = "system.posix_acl_access"
ACL_HEAD, ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")  # linux/posix_acl_xattr.h: version; tag, rights, who
ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK = 0x02, 0x04, 0x08, 0x10


def without_acl(path: str, mode: int) -> int:
    """The permissions that a copy without an ACL may have, of a file with this mode: what the group has by the mode
    may be what the ACL gives to some users. Looked at only where group and others have different rights."""
    if sys.platform != "linux" or not (mode >> 3 ^ mode) & 0o7:
        return mode
    try:
        data = os.getxattr(path, ACL, follow_symlinks=False)
    except OSError:  # it has none, or the file system knows none
        return mode
    entries = list(ACL_ENTRY.iter_unpack(data[ACL_HEAD.size :]))
    mask = next((rights for tag, rights, _ in entries if tag == ACL_MASK), 0o7)
    group = mask & next((rights for tag, rights, _ in entries if tag == ACL_GROUP_OBJ), 0)
    others = mode & 0o7
    for tag, rights, _ in entries:
        if tag in (ACL_USER, ACL_GROUP):  # who has fewer rights than others is one of them beside the copy
            group, others = group & rights, others & rights
    return mode & ~0o77 | group << 3 | others


def group_matters(mode: int) -> bool:
    """Whether it matters to whom a file of this mode belongs as a group: else that is not looked at."""
    return bool((mode >> 3 ^ mode) & 0o7 or mode & stat.S_ISGID)


def of_everybody(mode: int) -> int:
    """These permissions, of group and others only what both have."""
    both = mode >> 3 & mode & 0o7
    return mode & ~(stat.S_ISGID | 0o77) | both << 3 | both


def given(path: str, group: int) -> bool:
    """Let this belong to a group; whether it does."""
    try:
        if os.lstat(path).st_gid != group:
            os.chown(path, -1, group, follow_symlinks=False)
    except PermissionError:
        return False
    return True


def narrow(path: str, mode: int) -> None:
    """Let a file of ours, which an older version may have made, have no more permissions than these."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # there is none, or it is another user's
            there = os.lstat(path).st_mode
            if stat.S_ISREG(there) and stat.S_IMODE(there) & ~mode:
                os.chmod(path, there & mode)
