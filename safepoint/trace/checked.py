"""The wrappers of check mode, in C: each notes its arguments, the handles that it reads, and what it returns.

See checking.h for what they may do, and docs/format.md for the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from safepoint.trace import roles
from safepoint.trace.mpi_h import Prototype
from safepoint.trace.signatures import HANDLES, Parameter, parameter, signatures

CONSTANTS = Path(__file__).with_name("constants.txt")
KINDS = frozenset(HANDLES.values())
READS = {  # kinds that read the handles that they are given the address of
    "wait", "test", "start", "cancel", "request_free", "look", "comm_free", "type_commit", "type_free", "group_free",
    "op_free", "win_free", "file_free", "mrecv", "imrecv", "waitall", "waitany", "waitsome", "testall", "testany",
    "testsome", "startall",
}  # fmt: skip
REMOVED = {"MPI_LB", "MPI_UB"}  # with MPI-3; a header may have them, and refuse whoever uses them
NUMBERS = {"flag", "index", "outcount"}  # single ints that a call returns
WRAPPER = """
static int do_{name}({declared}const void *from_)
{{
    struct call c __attribute__((cleanup(unwound)));
    uint64_t leave_;
    int code_;
    c.open = 0;
    if (!LIKELY(watched[{number}]) || !LIKELY(enter(&c, {number}, from_)))
        return REAL({index}, {name})({given});
    if (!finalized) {{
        {before}
    }}
    if (checking) {{
        {arguments}
    }}
    go(&c);
    code_ = REAL({index}, {name})({sent});
    leave_ = now();
    if (finalized) {{
    }} else if (LIKELY(!code_)) {{
        {after}
        {results}
    }} else {{
        {failed}
    }}
    end(&c, leave_, finalized ? 0 : code_);{final}
    return code_;
}}
"""
INIT = """
static int do_{name}({declared}const void *from_)
{{
    struct call c;
    int code_, first_ = !trace.notes;
    if (!first_ && watched[{number}] && enter(&c, {number}, from_)) {{
        if (checking) {{
            {arguments}
        }}
        go(&c);
    }} else {{
        first_ = 1;
    }}
    code_ = REAL({index}, {name})({given});
    if (!code_ && first_) {{
        begin();
        if (checking && watched[{number}] && enter(&c, {number}, from_)) {{
            {arguments}
            go(&c);
            end(&c, now(), 0);
        }}
    }} else if (!first_) {{
        end(&c, now(), code_);
    }}
    return code_;
}}
"""


def wrapper(prototype: Prototype, kind: str, words: Mapping[str, object]) -> str:
    """Of one function. `words`: what its wrapper without arguments is made of."""
    names, known = prototype.names, signatures().get(prototype.standard)
    parameters = [parameter(re.sub(r"_(?=(\[\d*\])*$)", "", text)) for text in prototype.parameters]
    if known is not None and len(known.parameters) == len(parameters):
        parameters = list(known.parameters)  # another MPI may call them otherwise
    if kind == "init":
        return INIT.format(**words, arguments=_arguments(names, parameters, kind, prototype.standard))
    passed = str(words["passed"])
    if "c.status" in passed:  # of a call whose note was not begun before MPI_Finalize there is none of ours
        passed = ", ".join(
            f"(finalized ? {name} : c.status)" if word == "c.status" else word
            for name, word in zip(names, passed.split(", "), strict=True)
        )
    return WRAPPER.format(
        **{**words, "sent": passed, "final": "\n    after_finalize();" if kind == "finalize" else ""},
        arguments=_arguments(names, parameters, kind, prototype.standard),
        results=_results(names, parameters, kind, prototype.standard),
    )


def _reads(kind: str, standard: str) -> bool:
    return kind in READS or standard.endswith("_free")


def _arguments(names: tuple[str, ...], parameters: list[Parameter], kind: str, standard: str) -> str:
    """On entry."""
    lines = []
    if names:
        values = ", ".join(f"V({name})" for name in names)
        lines.append(f"int64_t values_[] = {{{values}}};")
        lines.append(f"noted_row(&c, ARGUMENTS, 0, {len(names)}, values_);")
    else:
        lines.append("noted_row(&c, ARGUMENTS, 0, 0, NULL);")
    role = roles.ROLES.get(standard)
    count = names[role.arguments.index("n")] if role is not None and "n" in role.arguments else ""
    for at, (name, one) in enumerate(zip(names, parameters, strict=True), 1):
        if one.kind not in KINDS or one.by == "value" or not _reads(kind, standard):
            continue
        if one.kind == "request" and count:
            lines.append(f"noted_requests(&c, BEFORE, {at}, {count}, {name});")
        elif one.by == "pointer":
            lines.append(f"if ({name}) noted_one(&c, BEFORE, {at}, V(*{name}));")
    return "\n        ".join(lines)


def _results(names: tuple[str, ...], parameters: list[Parameter], kind: str, standard: str) -> str:
    """When it has returned without an error."""
    lines = []
    for at, (name, one) in enumerate(zip(names, parameters, strict=True), 1):
        if one.by == "pointer" and not one.const and one.kind in KINDS and not _reads(kind, standard):
            lines.append(f"if ({name}) noted_one(&c, AFTER, {at}, V(*{name}));")
        elif one.by == "pointer" and one.kind == "int" and one.name in NUMBERS:
            lines.append(f"if ({name}) noted_one(&c, AFTER, {at}, *{name});")
    if kind in ("waitsome", "testsome"):
        found = {one.name: (at, name) for at, (name, one) in enumerate(zip(names, parameters, strict=True), 1)}
        (at, indices), (_, count) = found["array_of_indices"], found["outcount"]
        lines.append(f"noted_ints(&c, {at}, *{count}, {indices});")
    return "\n        ".join(lines)


def constants() -> list[str]:
    """The predefined constants of MPI, with MPI_ before them."""
    rows = (line.partition(": ")[2] for line in CONSTANTS.read_text("utf-8").splitlines())
    return [f"MPI_{name}" for names in rows for name in names.split()]


def tables(numbers: Mapping[str, int]) -> str:
    """What checking.c looks up. `numbers`: of the functions that can be watched."""
    named = {**numbers, **{name: number for number, name in roles.OURS.items()}}
    rows = "".join(f'    {{"{name}", {number}}},\n' for name, number in sorted(named.items()))
    there = (name for name in constants() if name not in REMOVED)
    told = "".join(f'#ifdef {name}\n    told("{name}", V({name}));\n#endif\n' for name in there)
    return (
        f"const struct watchable watchables[] = {{\n{rows}    {{NULL, 0}},\n}};\n"
        f"void each_constant(void (*told)(const char *name, int64_t value))\n{{\n{told}}}\n"
    )
