"""What the operating system really promises. Only in this folder is there an fsync, a rename, a reflink or a lock.

`Disk` is the seam: the operations that a test must be able to record, fail, kill or cut the power at. All the rest is
made of these (`files`: functions that take a disk first), or is no matter of a disk (`kernel`: what the machine tells;
`threads`; `signals`; `rights`), or is bytes (`codec`, `bundle`). Each module knows those before it only:

    kernel  signals  threads  rights  disk  files  codec  bundle
"""

from safepoint.disk.disk import NONE, Disk
from safepoint.disk.kernel import PageCache, SyncFailed

__all__ = ["NONE", "Disk", "PageCache", "SyncFailed"]
