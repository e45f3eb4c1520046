"""The source of the tracer of C and Fortran: a wrapper for each function that an `mpi.h` declares.

With `arguments` it is that of check mode (`watch.h`): all functions have one, which tests a byte first.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence

from safepoint.trace import parameters, roles
from safepoint.trace.c_shapes import SHAPES, TELLS, Shape, parts_of
from safepoint.trace.mpi_h import Prototype, prototypes

NOT_NOTED = {roles.LOCAL, "type_new", "type_commit", "type_free", "group_new", "group_free", "op_new", "op_free"}
FORTRAN = "_", "_f08_", "_f08ts_", "_f08ts_large_", "_f08_large_"  # how the bindings end the names of functions
# Where a program sets an error handler, and asks for it: `watch.c` has one of its own in the place of one of them.
SETS = {"Comm_set_errhandler": 0, "Errhandler_set": 0, "Win_set_errhandler": 1}
# By these a loader, such as mpi4py's, sees whether the process has an MPI library: it would take us for one.
LOOKED_FOR = "Get_version", "Get_library_version", "Abi_get_version", "Abi_get_info"
# In these MPI calls back what the program has given for its attributes: to copy, or to delete them.
CALLS_BACK = {"finalize", "comm_free", "type_free", "win_free"}
ATTRIBUTES = "_set_attr", "_delete_attr", "Attr_put", "Attr_delete", "dup", "dup_with_info"
ASKS = {"Comm_get_errhandler": "", "Errhandler_get": "", "Win_get_errhandler": "_of_win"}

WRAPPER = """
static int do_{name}({declared}const void *from_)
{{
    struct call c __attribute__((cleanup(unwound)));
    uint64_t leave_;
    int code_;
    if (!LIKELY(enter(&c, {number}, from_)))
        return {real};
    {before}
    go(&c);
    code_ = {noted};
    leave_ = now();
    if (LIKELY(!code_)) {{
        {after}
    }} else {{
        {failed}
    }}
    end(&c, leave_, code_);{last}
    return code_;
}}
"""
INIT = """
static int do_{name}({declared}const void *from_)
{{
    int code_ = {real};
    if (!code_)
        begin();
    return code_;
}}
"""
FIRST = """
static int first_{name}({declared}const void *from_)
{{
    int code_ = {real};
    if (!code_)
        begin();
    if (!code_ && watched[{number}]) {{
        struct call c __attribute__((cleanup(unwound)));
        if (enter(&c, {number}, from_)) {{
            {before}
            go(&c);
            {after}
            end(&c, now(), 0);
        }}
    }}
    self.line = 0;
    return code_;
}}
"""
NAMES = """
EXPORT int {name}({alone})
{{
    return do_{name}({comma}self.fortran ? self.fortran : __builtin_return_address(0));
}}
EXPORT int P{name}({alone})
{{
    return self.fortran ? do_{name}({comma}self.fortran) : {real};
}}
"""
NAMES_IF_WATCHED = """
EXPORT int {name}({alone})
{{
    if (LIKELY(!watched[{number}])) {{
        self.line = 0;
        return {unwatched};
    }}
    return do_{name}({comma}self.fortran ? self.fortran : __builtin_return_address(0));
}}
EXPORT int P{name}({alone})
{{
    if (LIKELY(!self.fortran))
        return {of_mpi};
    return watched[{number}] ? do_{name}({comma}self.fortran) : {unwatched_in_fortran};
}}
"""
HEAD = """#include "{header}"
typedef void *W;
#define LIST(...) __VA_ARGS__
static void *real_[{count}];
const char *const real_names[] = {{{names}}};
const char functions_json[] = {functions};
void *found_real(unsigned index) {{ return real_[index] = found(real_names[index]); }}
#define REAL(index, name) ((__typeof__(name) *)(LIKELY(real_[index] != NULL) ? real_[index] : found_real(index)))
#define FORTRAN(name, declared, passed) \\
    EXPORT void name declared \\
    {{ \\
        W given[] = {{LIST passed}}; \\
        static void (*next) declared; \\
        const void *outer = self.fortran; \\
        if (!next) \\
            next = (void (*) declared)found(#name); \\
        if (!outer) {{ \\
            self.fortran = __builtin_return_address(0); \\
            self.given = given; \\
        }} \\
        next passed; \\
        self.fortran = outer; \\
    }}
"""


def unknown(text: str) -> list[str]:
    """The functions that an `mpi.h` declares, and the table of roles does not know."""
    found = (p for p in prototypes(text) if p.name.startswith("MPI_") and p.acts)
    return sorted({p.standard for p in found if roles.kind(p.standard) == roles.OTHER})


def wrapped(text: str, arguments: bool = False, missing: Container[str] = ()) -> list[Prototype]:
    """Those that are noted; with `arguments`, those that can be, but what the library is `missing`: a program may look
    for a function by its name, and must not find a wrapper of nothing."""
    found = [one for one in prototypes(text) if one.acts and (_noted(one) or (arguments and _watchable(one)))]
    return [one for one in found if f"P{one.name}" not in missing]


def _noted(prototype: Prototype) -> bool:
    known = prototype.name.startswith("MPI_") or prototype.standard in roles.ROLES
    return known and roles.kind(prototype.standard) not in NOT_NOTED


def _watchable(prototype: Prototype) -> bool:
    name, odd = prototype.name, prototype.standard in LOOKED_FOR or "..." in prototype.names
    return name.startswith("MPI_") and not name.startswith("MPI_T_") and not odd


def _called(prototype: Prototype, index: int, sync: int, arguments: bool) -> tuple[str, str, str]:
    """The function behind a wrapper; that which is called where the program's call is noted; and where it is not: what
    MPI itself sends inside of a call is not made synchronous. `sync`: the index of its synchronous form; -1: none."""
    plain = f"REAL({index}, {prototype.name})"
    if sync < 0 or not arguments:
        return plain, plain, plain
    other = f"REAL({sync}, {prototype.name})"  # it has the same type
    return plain, f"(trace.sync_sends ? {other} : {plain})", f"(trace.sync_sends && !self.inside ? {other} : {plain})"


def _wrapper(prototype: Prototype, index: int, number: int, arguments: bool, sync: int) -> str:
    kind, parts, standard = roles.kind(prototype.standard), parts_of(prototype), prototype.standard
    given = list(prototype.names)
    status = parts.get("status") or parts.get("statuses") if kind in TELLS else None
    shape = SHAPES.get(kind, Shape())
    words = {key: code.format(**parts) for key, code in shape._asdict().items()}
    words["last"] = '\n    finish("finalize");' if kind == "finalize" else ""
    if arguments:
        words = _checked(prototype, kind, parts, words)
        if standard in SETS:
            given[1] = f"instead_of_fatal({given[1]}, {SETS[standard]})"
    plain, called, own = _called(prototype, index, sync, arguments)
    real = f"{own}({', '.join(given)})"
    passed = ", ".join("c.status" if name == status else name for name in given)
    noted = f"{called}({passed})"
    if arguments and standard in ASKS:
        real, noted = (f"as_it_was_set{ASKS[standard]}({', '.join(given)}, {call})" for call in (real, noted))
    first = f"first_{prototype.name}({''.join(name + ', ' for name in given)}%s)"
    words |= {
        "name": prototype.name, "number": str(number), "real": real, "noted": noted,
        "of_mpi": f"{plain}({', '.join(given)})" if called != plain else real,
        "comma": "".join(name + ", " for name in prototype.names),
        "declared": "".join(f"{parameter}, " for parameter in prototype.parameters),
        "alone": ", ".join(prototype.parameters) or "void",
        "unwatched": first % "self.fortran ? self.fortran : __builtin_return_address(0)" if kind == "init" else real,
        "unwatched_in_fortran": first % "self.fortran" if kind == "init" else real,
    }  # fmt: skip
    if arguments:
        return (WRAPPER + FIRST * (kind == "init") + NAMES_IF_WATCHED).format(**words)
    return ((INIT if kind == "init" else WRAPPER) + NAMES).format(**words)


def _checked(prototype: Prototype, kind: str, parts: dict[str, str], words: dict[str, str]) -> dict[str, str]:
    """With the rows of check mode, and what is done in no other."""
    after = ["went_well(&c);", words["after"], parameters.when_done(prototype)]
    if kind == "win_new":
        after.append("watch_window(*{win});".format(**parts))
    if kind == "finalize":
        after.append("trace.finalized = CHECKING;")
        words["last"] = '\n    if (!CHECKING)\n        finish("finalize");'
    back = kind in CALLS_BACK or prototype.standard.endswith(ATTRIBUTES)
    before = [words["before"], parameters.on_entry(prototype), "calls_back();" * back]
    return words | {"before": "\n    ".join(filter(None, before)), "after": "\n        ".join(filter(None, after))}


def _fortran(prototype: Prototype, there: Container[str]) -> str:
    """Wrappers of its names in Fortran: all arguments are addresses, and those of texts have lengths at the end."""
    count = len(prototype.names) + 1 + sum("char" in parameter for parameter in prototype.parameters)
    declared = ", ".join(f"W a{at}" for at in range(max(4, count)))
    passed = declared.replace("W ", "")
    names = [prototype.name.lower() + end for end in FORTRAN]
    return "".join(f"FORTRAN({name}, ({declared}), ({passed}))\n" for name in names if name in there)


def source(
    text: str, there: Container[str] = (), arguments: bool = False, constants: Sequence[str] = (),
    missing: Container[str] = (),
) -> str:  # fmt: skip
    """The wrappers for this `mpi.h`, in C; and of those of its functions in Fortran that are there. With `arguments`:
    the constants whose values are told, and what the library lacks of what its header declares."""
    found = wrapped(text, arguments, missing)
    others = sorted({prototype.standard for prototype in found if prototype.standard not in roles.ROLES})
    numbers = roles.NUMBERS | {name: number for number, name in enumerate(others, roles.FIRST_OTHER)}
    functions = json.dumps(roles.functions({numbers[name]: name for name in others}))
    names = ", ".join(f'"P{prototype.name}"' for prototype in found)
    header = "watch.h" if arguments else "pmpi.h"
    made = [HEAD.format(header=header, count=len(found), names=names, functions=json.dumps(functions))]
    at = {prototype.name: index for index, prototype in enumerate(found)}
    for index, prototype in enumerate(found):
        sync = at.get(prototype.name.replace(prototype.standard, roles.SYNCHRONOUS.get(prototype.standard, "?")), -1)
        made.append(_wrapper(prototype, index, numbers[prototype.standard], arguments, sync))
        if not prototype.name.endswith("_c"):
            made.append(_fortran(prototype, there))
    return "".join([*made, *(_tables(found, numbers, constants) if arguments else ())])


def _tables(found: Sequence[Prototype], numbers: dict[str, int], constants: Sequence[str]) -> list[str]:
    """The functions by name, and the constants."""
    noted = {one.standard: _noted(one) and roles.kind(one.standard) != "init" for one in found}
    rows = "".join(f'    {{"{name}", {numbers[name]}, {int(noted[name])}}},\n' for name in noted)
    told = "".join(f'    told("{name}", VALUE({name}));\n' for name in constants)
    return [
        f"\nconst struct function functions[] = {{\n{rows}}};\n",
        "const unsigned functions_count = sizeof functions / sizeof *functions;\n",
        f"void each_constant(void (*told)(const char *name, int64_t value))\n{{\n{told}}}\n",
    ]
