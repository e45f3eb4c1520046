"""The exceptions of safepoint, each with a stable integer code.

    SafepointError            1
     |- UsageError           10
     |- ManifestError        11
     |- FormatError          12
     |- LockedError          13
     |- MissingFilesError    14
     |- RefusedFileError     15
     |- SaveError            16
     |- RestoreError         17
     |- DamagedError         18
     |- OverwrittenError     19
     |- NothingSavedError    20
     |- GraphError           21
     `- TaskError            22

The codes are for programs that cannot catch Python exceptions: exit statuses, C and Fortran. They never change meaning.
A message says what could not be done, which file, the system's cause, and what still holds.
"""

from __future__ import annotations


class SafepointError(Exception):
    """Every error that this library raises on purpose. `errno` is the system's cause, if there was one."""

    code = 1
    on_all_ranks = False  # every rank raises it: then none waits for this one

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class UsageError(SafepointError):
    """The verbs were called in an order that cannot work; the message says what to do. Nothing was changed."""

    code = 10


class ManifestError(SafepointError):
    """`.safepoint` is missing or wrong; names file, line and cause. Nothing was changed."""

    code = 11


class FormatError(SafepointError):
    """The side directory is of a newer format, or not one of ours. Nothing was changed."""

    code = 12


class LockedError(SafepointError):
    """Another run holds this directory; says who. Nothing was changed."""

    code = 13


class MissingFilesError(SafepointError):
    """Some of the listed files exist and others do not. Nothing was moved."""

    code = 14


class RefusedFileError(SafepointError):
    """A listed file cannot be saved, or given back, as it is: open for writing, a pipe, a link. Nothing was moved."""

    code = 15


class SaveError(SafepointError):
    """The system failed while a set was saved. The sets before it are intact, unless it says that they are gone."""

    code = 16


class RestoreError(SafepointError):
    """The system failed while a set was given back. It is intact, and `restore` may be repeated."""

    code = 17


class DamagedError(SafepointError):
    """Sets exist, but none of them is whole, or the directory that had them is gone. No file was touched."""

    code = 18


class OverwrittenError(SafepointError):
    """An initial file was changed before the first set was saved: there is nothing to go back to."""

    code = 19


class NothingSavedError(SafepointError):
    """There is no set here, or not the one that was asked for, or no side directory at all. Nothing was changed."""

    code = 20


class GraphError(SafepointError):
    """A graph of tasks, or its text, is wrong; names file, table and key, or the vertex. Nothing was run."""

    code = 21


class TaskError(SafepointError):
    """Vertices of a graph failed; names them. What had finished stays, and the next run goes on from there."""

    code = 22
