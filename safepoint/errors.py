"""The exceptions of safepoint, each with a stable integer code.

    SafepointError            1   every error that this library raises on purpose
     |- UsageError           10   the verbs were called in an order that cannot work; nothing was changed
     |- ManifestError        11   `.safepoint` is missing or wrong; names file, line and cause; nothing was changed
     |- FormatError          12   the side directory is of a newer format, or not one of ours; nothing was changed
     |- LockedError          13   another run holds this directory; says who; nothing was changed
     |- MissingFilesError    14   some of the listed files exist and others do not; nothing was moved
     |- RefusedFileError     15   a listed file cannot be saved as it is (open for writing, a pipe, a link)
     |- SaveError            16   the system failed while a set was saved; the sets before it are intact
     |- RestoreError         17   the system failed while a set was given back; it is intact, restore may be repeated
     |- DamagedError         18   sets exist, but none of them is whole; says why of each; no file was touched
     `- OverwrittenError     19   an initial file was changed before the first set was saved: nothing to go back to

The codes are for programs that cannot catch Python exceptions: exit statuses, C and Fortran. They never change meaning.
A message says what could not be done, which file, the system's cause, and what still holds.
"""

from __future__ import annotations


class SafepointError(Exception):
    code = 1

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno  # the system's cause, if there was one


class UsageError(SafepointError):
    code = 10


class ManifestError(SafepointError):
    code = 11


class FormatError(SafepointError):
    code = 12


class LockedError(SafepointError):
    code = 13


class MissingFilesError(SafepointError):
    code = 14


class RefusedFileError(SafepointError):
    code = 15


class SaveError(SafepointError):
    code = 16


class RestoreError(SafepointError):
    code = 17


class DamagedError(SafepointError):
    code = 18


class OverwrittenError(SafepointError):
    code = 19
