"""A header that tells the tracer the line of each call of MPI, for programs in C and C++ without debug information."""

from __future__ import annotations

from safepoint.trace.signatures import Signature, signatures

NOT_NOTED = "Pcontrol", "Get_version", "Get_library_version", "Abi_get_version", "Abi_get_info"
HEAD = """\
/* safepoint-lines.h: tells the tracer of `safepoint check` and `safepoint trace` the line of each call of MPI.
 *
 *     mpicc -include safepoint-lines.h solver.c -o solver
 *
 * A program that defines _GNU_SOURCE or the like in its source has this header as mpi.h in a directory of its own
 * instead: `mpicc -Ithat-directory solver.c -o solver`. Without a tracer the calls are as they were. A source that
 * defines functions of MPI itself, or calls one as ::MPI_Send, is compiled without it. */
#ifndef SAFEPOINT_LINES_H
#define SAFEPOINT_LINES_H
#if defined(__GNUC__) && defined(__linux__)
#pragma GCC system_header
#include_next <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif
extern void *safepoint_find_symbol(void *, const char *) __asm__("dlsym") __attribute__((weak));
#ifdef __cplusplus
}
#endif

static __attribute__((unused)) void safepoint_line(const char *file, int line)
{
    static void (*told)(const char *, int);
    static int looked;
    if (!looked && safepoint_find_symbol)
        *(void **)&told = safepoint_find_symbol((void *)0, "safepoint_trace_line");
    looked = 1;
    if (told)
        told(file, line);
}
#define SAFEPOINT_LINE safepoint_line(__FILE__, __LINE__)

"""
EACH = """\
#ifndef MPI_{name}
#define MPI_{name}(...) (SAFEPOINT_LINE, MPI_{name}(__VA_ARGS__))
#endif
"""
TAIL = """
#else
#include <mpi.h>
#endif
#endif
"""


def header() -> str:
    """Its text."""
    names = [name for one in signatures().values() if one.name not in NOT_NOTED for name in _forms(one)]
    return HEAD + "".join(EACH.format(name=name) for name in names) + TAIL


def _forms(one: Signature) -> list[str]:
    """With that of large counts, where there may be one."""
    counts = any(each.kind == "int" for each in one.parameters)
    return [one.name, f"{one.name}_c"] if counts else [one.name]
