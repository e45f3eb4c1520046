"""The numbers in a trace: kinds of events and types of values. `c/sp_trace.h` has the same.

An event is a record, and as many records of kind `MORE` behind it as `more` says.
"""

from __future__ import annotations

END = 0  # not a record: the trace ends before it
REGION, REGION_END, ENTER, LEAVE = 1, 2, 3, 4
LOOP, LOOP_END, ITER = 5, 6, 7
WRITE, READ, DIGEST = 8, 9, 10
CALL, RETURN = 11, 12
SINGLE, SINGLE_END, MASTER, MASTER_END = 13, 14, 15, 16
CRITICAL, CRITICAL_END, ORDERED, ORDERED_END = 17, 18, 19, 20
BARRIER, ATOMIC, ATOMIC_END = 21, 22, 23
SECTIONS, SECTIONS_END = 24, 25
PRIVATE_UNSET = 26
MORE = 255

NAMES = {
    REGION: "region", REGION_END: "region end", ENTER: "enter", LEAVE: "leave", LOOP: "loop", LOOP_END: "loop end",
    ITER: "iteration", WRITE: "write", READ: "read", DIGEST: "digest", CALL: "call", RETURN: "return",
    SINGLE: "single", SINGLE_END: "single end", MASTER: "master", MASTER_END: "master end", CRITICAL: "critical",
    CRITICAL_END: "critical end", ORDERED: "ordered", ORDERED_END: "ordered end", BARRIER: "barrier",
    ATOMIC: "atomic", ATOMIC_END: "atomic end", SECTIONS: "sections", SECTIONS_END: "sections end",
    PRIVATE_UNSET: "private unset", MORE: "more",
}  # fmt: skip

NONE = 0
INTEGER1, INTEGER2, INTEGER4, INTEGER8 = 1, 2, 3, 4
REAL4, REAL8, REAL16 = 5, 6, 7
COMPLEX4, COMPLEX8, COMPLEX16 = 8, 9, 10  # the number is the bytes of a part
LOGICAL1, LOGICAL2, LOGICAL4, LOGICAL8 = 11, 12, 13, 14
CHARACTER = 15

TYPES = {
    NONE: "none", INTEGER1: "integer(1)", INTEGER2: "integer(2)", INTEGER4: "integer(4)", INTEGER8: "integer(8)",
    REAL4: "real(4)", REAL8: "real(8)", REAL16: "real(16)", COMPLEX4: "complex(4)", COMPLEX8: "complex(8)",
    COMPLEX16: "complex(16)", LOGICAL1: "logical(1)", LOGICAL2: "logical(2)", LOGICAL4: "logical(4)",
    LOGICAL8: "logical(8)", CHARACTER: "character",
}  # fmt: skip

SIZES = {
    INTEGER1: 1, INTEGER2: 2, INTEGER4: 4, INTEGER8: 8, REAL4: 4, REAL8: 8, REAL16: 16, COMPLEX4: 8, COMPLEX8: 16,
    COMPLEX16: 32, LOGICAL1: 1, LOGICAL2: 2, LOGICAL4: 4, LOGICAL8: 8, CHARACTER: 1,
}  # bytes of a value; of a character, one letter  # fmt: skip

NESTED = 1 << 63  # a visit with this bit is of a region within a region
TEXT = 32  # so many bytes of a longer text are kept, and its xxh3-64
SEGMENT, HEAD, RECORD = 2 << 20, 64, 16  # bytes: of a segment, of the head of a file, of a record


def more(kind: int, type: int, extra: int, value: int) -> int:
    """How many records of kind `MORE` belong to an event.

    Of a `LOOP` and an `ITER`, `extra` is the number of loop variables (0 is 1). A `DIGEST` with `extra` 1 has four
    statistics behind the two halves of its checksum: least, greatest, mean, root of the mean of squares; with 2 also
    the mean of what each element is times a number from 0 to 1 that its place has.
    """
    if kind == LOOP:
        return 3 * max(extra, 1) - 1
    if kind == ITER:
        return max(extra, 1) - 1
    if kind == DIGEST:
        return 2 + (4 if extra == 1 else 5 if extra else 0)
    if kind not in (WRITE, READ):
        return 0
    if type == CHARACTER:
        return (min(value, TEXT) + 7) // 8 + (value > TEXT)
    return (SIZES.get(type, 8) + 7) // 8 - 1
