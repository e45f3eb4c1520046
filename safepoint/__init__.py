"""Crash-safe save points for long computations.

    import safepoint

    safepoint.init()                          # reads ./.safepoint, the list of files
    saved = safepoint.restore()               # puts the last complete set back into place
    if saved and saved.finished:
        raise SystemExit                      # with status 0: the files in place are the result
    u = read_files() if saved else initial()
    for step in range(saved.step if saved else 0, n):
        safepoint.hide(step=step)             # the files hold `step`; they move away in microseconds
        u = advance(u)
        write_files(u)                        # new files, under the same names
    safepoint.finish(step=n)                  # the files now in place are the result

Kill the program at any instant and start it again: `restore` gives back all listed files of one save point, byte for
byte, never torn and never mixed. The functions act on the session that the last `init` made and returned; after an
`init` that failed they refuse, until one succeeds.
"""

from __future__ import annotations

from safepoint.default import (
    atomic,
    close,
    due,
    finish,
    hide,
    init,
    load_state,
    mark,
    reading,
    restore,
    save_state,
    sets,
    should_stop,
    stop,
    wait,
    watch,
)
from safepoint.errors import (
    DamagedError,
    FormatError,
    GraphError,
    LockedError,
    ManifestError,
    MissingFilesError,
    NothingSavedError,
    OverwrittenError,
    RefusedFileError,
    RestoreError,
    SafepointError,
    SaveError,
    TaskError,
    UsageError,
)
from safepoint.kept import StoredSet
from safepoint.listener import SavePoint
from safepoint.program import Session
from safepoint.session import __version__
from safepoint.state.variables import State

__all__ = [
    "DamagedError", "FormatError", "GraphError", "LockedError", "ManifestError", "MissingFilesError",
    "NothingSavedError", "OverwrittenError", "RefusedFileError", "RestoreError", "SafepointError", "SaveError",
    "SavePoint", "Session", "State", "StoredSet", "TaskError", "UsageError", "__version__", "atomic", "close",
    "due", "finish", "hide", "init", "load_state", "mark", "reading", "restore", "save_state", "sets",
    "should_stop", "stop", "wait", "watch",
]  # fmt: skip
