"""Who could write to the listed files at this moment. Asked while the command stands still: else it tells nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

from safepoint.disk import Disk, handles
from safepoint.manifest import Manifest
from safepoint.patterns import excluded
from safepoint.root import Root
from safepoint.saving import find


def open_files(root: Root, manifest: Manifest) -> list[str]:
    """The listed files that somebody could write to at this moment, but those that only grow."""
    paths = []
    for item in find.find(root, manifest).items:
        full = os.path.join(root.work, item.path)
        if item.tree:
            for where, directories, names in os.walk(full):
                here = root.shown(where)
                directories[:] = [name for name in directories if not excluded(item.without, f"{here}/{name}")]
                paths += [f"{where}/{name}" for name in names if not excluded(item.without, f"{here}/{name}")]
        elif not ((entry := manifest.decides(item.path)) and entry.grows):
            paths.append(full)
    regular = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    return root.disk.open_for_writing(regular)


def holders(disk: Disk, paths: Sequence[str]) -> str:
    """Who has these files open, in words."""
    found = {who for path in paths for who in handles.holders(path)}
    return ", ".join(sorted(found) or ["somebody who cannot be seen"])
