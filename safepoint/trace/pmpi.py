"""The tracer of C and Fortran: a library for LD_PRELOAD, made with the user's own MPI.

Its wrappers are written from the prototypes of the `mpi.h` that the program was compiled with: no two MPI libraries
have the same. What they note is said by the table of roles; how, by `pmpi.h`.

(1) A build is keyed by what is compiled and with what, and is renamed into the cache when it is whole: two at once, or
    one that is killed, leave none that is half.
(2) The Fortran bindings of one MPI call `MPI_Send`, those of another `PMPI_Send`. Both are wrapped; a call of the
    second is noted only inside of a Fortran function, whose wrapper keeps the address that the program has called it
    from.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

from safepoint.c.build import cache, words
from safepoint.errors import UsageError
from safepoint.session import __version__
from safepoint.trace import checked, roles
from safepoint.trace.linked import mpicc_for as mpicc_for  # who asks for a library asks for its compiler
from safepoint.trace.mpi_h import Prototype as Prototype
from safepoint.trace.mpi_h import prototypes as prototypes

SOURCES = Path(__file__).resolve().parent
HEADERS = "pmpi.h", "checking.h"
FLAGS = ("-O1", "-fPIC", "-shared", "-fexceptions", "-fvisibility=hidden", "-w")
NOT_NOTED = {roles.LOCAL, "type_new", "type_commit", "type_free", "group_new", "group_free", "op_new", "op_free"}
FORTRAN = "_", "_f08_", "_f08ts_", "_f08ts_large_", "_f08_large_"  # how the bindings end the names of functions
BINDINGS = "libmpi*.so", "libpmpi*.so"


class Shape(NamedTuple):
    """What the wrapper of a kind does, in C: before the call, after it, and if it has failed. Names in braces are the
    parts of the arguments (`roles`); one that a function does not have is `ABSENT`."""

    before: str = ""
    after: str = ""
    failed: str = ""


ABSENT = {
    "buf": "NULL",
    "count": "-1",
    "type": "MPI_DATATYPE_NULL",
    "root": "NO_ROOT",
    "comm": "MPI_COMM_NULL",
}
SENDS = "sends(&c, {count}, {type}, {dest}, {tag}, {comm});"
TAKES = "takes(&c, {source}, {tag}, {comm}); size_of(&c, {count}, {type});"
PROBES = "takes(&c, {source}, {tag}, {comm}); looks(&c, {status}, 1);"
MESSAGE = "takes_message(&c, {count}, {type}, {message});"
FAILS, SEND_FAILS = "fails();", "send_fails(code_);"
FAILED = "waits_failed(&c, {requests}); " + FAILS
GONE = "wait_failed(&c, *{request} == MPI_REQUEST_NULL); " + FAILS
COLLECTIVE = "collective(&c, {counts}, {buf}, {count}, {type}, {root}, {comm});"
OPENED = "opened(&c, {request}, nothing());"
SEVERAL = "waits_for(&c, {n}, {requests}, {statuses}, 0);"
SINGLE = "waits_for(&c, {n}, {requests}, {status}, 1);"
SOME = "waited_for(&c, *{outcount} > 0 ? *{outcount} : 0, {indices}, 0, %d);"
NEW = "new_comm(&c, *{newcomm}, 0);"
ON_WIN = "on_win(&c, {win});"
PUT = ON_WIN + " c.note->peer = {peer}; if ({used}) size_of(&c, {count}, {type});"
AT = ON_WIN + " c.note->peer = {peer};"
FILE_IO = "on_file(&c, {file}); if ({buffer}) size_of(&c, {count}, {type});"
SHAPES = {
    "send": Shape(SENDS, "sent(&c);", SEND_FAILS),
    "isend": Shape(SENDS, "sent(&c); opened(&c, {request}, c.sends);", SEND_FAILS),
    "send_init": Shape(SENDS, "kept(&c, {request}, c.sends);"),
    "recv": Shape(TAKES + " looks(&c, {status}, c.takes.wild);", "received(&c);", FAILS),
    "irecv": Shape(TAKES, "opened(&c, {request}, c.takes);"),
    "recv_init": Shape(TAKES, "kept(&c, {request}, c.takes);"),
    "sendrecv": Shape(SENDS + " also_takes(&c, {source}, {recvtag}); looks(&c, {status}, c.takes.wild);",
                      "sent(&c); received(&c);", FAILS),
    "isendrecv": Shape(SENDS + " also_takes(&c, {source}, {recvtag});", "sent(&c); opened(&c, {request}, c.takes);",
                       FAILS),
    "probe": Shape(PROBES, "probed(&c);"),
    "iprobe": Shape(PROBES, "if (*{flag}) probed(&c);"),
    "mprobe": Shape(PROBES, "matched(&c, *{message});"),
    "improbe": Shape(PROBES, "if (*{flag}) matched(&c, *{message});"),
    "mrecv": Shape(MESSAGE, "c.status = NULL; received(&c); message_gone(&c);", "message_gone(&c); " + FAILS),
    "imrecv": Shape(MESSAGE, "takes_later(&c, {request});"),
    "start": Shape(after="starts(&c, 1, {request}, 1);", failed=FAILS),
    "startall": Shape(after="starts(&c, {n}, {requests}, 0);", failed=FAILS),
    "wait": Shape("waits(&c, {request}, {status});", "waited(&c, 1, 0);", GONE),
    "test": Shape("waits(&c, {request}, {status});", "waited(&c, *{flag}, 1);", GONE),
    "waitall": Shape(SEVERAL, "waited_for(&c, {n}, NULL, 0, 0);", FAILED),
    "testall": Shape(SEVERAL, "waited_for(&c, *{flag} ? {n} : 0, NULL, 0, 1);", FAILED),
    "waitany": Shape(SINGLE, "waited_for(&c, *{index} != MPI_UNDEFINED, {index}, 1, 0);", FAILED),
    "testany": Shape(SINGLE, "waited_for(&c, *{flag} && *{index} != MPI_UNDEFINED, {index}, 1, 1);", FAILED),
    "waitsome": Shape(SEVERAL, SOME % 0, FAILED),
    "testsome": Shape(SEVERAL, SOME % 1, FAILED),
    "cancel": Shape("cancels(&c, {request});"),
    "request_free": Shape("frees(&c, {request});", "wait_failed(&c, 1);", "wait_failed(&c, 0);"),
    "coll": Shape(COLLECTIVE),
    "icoll": Shape(COLLECTIVE, OPENED),
    "coll_init": Shape(COLLECTIVE, "kept(&c, {request}, nothing());"),
    "comm_new": Shape("on_comm(&c, {comm});", NEW),
    "icomm_new": Shape("on_comm(&c, {comm});", "new_comm(&c, *{newcomm}, 1); " + OPENED),
    "comm_of_group": Shape("on_comm(&c, {comm});", NEW),
    "outside": Shape("on_comm(&c, {comm});", NEW),
    "comm_free": Shape("on_comm(&c, *{comm}); forgets(&c, COMM);", "forgotten(&c, COMM, 0);",
                       "forgotten(&c, COMM, 1);"),
    "win_new": Shape("on_comm(&c, {comm});", "new_win(&c, *{win});"),
    "win_free": Shape("on_win(&c, *{win}); forgets(&c, WIN);", "forgotten(&c, WIN, 0);", "forgotten(&c, WIN, 1);"),
    "win_coll": Shape(ON_WIN, "fenced(&c);"),
    "put": Shape(PUT, "puts_in(&c);"),
    "iput": Shape(PUT, "puts_in(&c); " + OPENED),
    "win_open": Shape(AT, "epoch(&c, 1);"),
    "win_close": Shape(AT, "epoch(&c, -1);"),
    "win_expose": Shape(ON_WIN, "epoch(&c, 1);"),
    "win_exposed": Shape(ON_WIN, "if ({ended}) exposed(&c, {found});"),
    "win_flush": Shape(AT),
    "file_new": Shape("on_comm(&c, {comm});", "new_file(&c, *{file});"),
    "file_free": Shape("on_file(&c, *{file}); forgets(&c, MPIFILE);", "forgotten(&c, MPIFILE, 0);",
                       "forgotten(&c, MPIFILE, 1);"),
    "file_coll": Shape(FILE_IO),
    "file_icoll": Shape(FILE_IO, OPENED),
    "file_io": Shape(FILE_IO),
    "file_iio": Shape(FILE_IO, OPENED),
    "look": Shape(),
    "other": Shape(),
    "abort": Shape("on_comm(&c, {comm});"),
    "finalize": Shape(),
}  # fmt: skip
TELLS = {  # kinds that may pass on a status of ours
    "recv", "sendrecv", "probe", "iprobe", "mprobe", "improbe", "wait", "test", "waitall", "testall", "waitany",
    "testany", "waitsome", "testsome",
}  # fmt: skip


def unknown(text: str) -> list[str]:
    """The functions that an `mpi.h` declares, and the table of roles does not know."""
    found = (p for p in prototypes(text) if p.name.startswith("MPI_") and p.acts)
    return sorted({p.standard for p in found if roles.kind(p.standard) == roles.OTHER})


def wrapped(text: str, arguments: bool = False) -> list[Prototype]:
    """Those that are noted; with `arguments` all that may be asked for."""
    if arguments:
        return [
            prototype
            for prototype in prototypes(text)
            if prototype.acts
            and "..." not in prototype.names
            and (prototype.name.startswith("MPI_") or prototype.standard in roles.ROLES)
            and not prototype.name.startswith("MPI_T_")
        ]
    return [
        prototype
        for prototype in prototypes(text)
        if prototype.acts
        and roles.kind(prototype.standard) not in NOT_NOTED
        and (prototype.name.startswith("MPI_") or prototype.standard in roles.ROLES)
    ]


def _parts(prototype: Prototype) -> dict[str, str]:
    """What stands for the names in braces of its shape."""
    role = roles.ROLES.get(prototype.standard)
    given = {part: prototype.names[at] for at, part in enumerate(role.arguments) if part != "-"} if role else {}
    name = prototype.standard
    if "buf" not in given:
        counts = "NO_BUFFER"
    elif re.fullmatch("I?[Ss]catterv?(_init)?", name):
        counts = "AT_ROOT"
    elif re.fullmatch("I?[Gg]atherv?(_init)?", name):
        counts = "NOT_AT_ROOT"
    else:
        counts = "ALWAYS" if "op" in given or "root" in given else "NOT_IN_PLACE"
    return ABSENT | given | {
        "counts": counts, "buffer": "1" if "buf" in given else "0",
        "ended": f"*{given['flag']}" if "flag" in given else "1", "found": "FOUND" if "flag" in given else "0",
        "used": f"{given['op']} != MPI_NO_OP" if "op" in given else "1",
        "peer": f"rank_of({given['target']})" if "target" in given else "NONE",
    }  # fmt: skip


WRAPPER = """
static int do_{name}({declared}const void *from_)
{{
    struct call c __attribute__((cleanup(unwound)));
    uint64_t leave_;
    int code_;
    if (!LIKELY(enter(&c, {number}, from_)))
        return REAL({index}, {name})({given});
    {before}
    go(&c);
    code_ = REAL({index}, {name})({passed});
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
    int code_ = REAL({index}, {name})({given});
    if (!code_)
        begin();
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
    return self.fortran ? do_{name}({comma}self.fortran) : REAL({index}, {name})({given});
}}
"""
HEAD = """#include "pmpi.h"
typedef void *W;
static void *real_[{count}];
const char *const real_names[] = {{{names}}};
const char functions_json[] = {functions};
void *found_real(unsigned index) {{ return real_[index] = found(real_names[index]); }}
#define REAL(index, name) ((__typeof__(name) *)(LIKELY(real_[index] != NULL) ? real_[index] : found_real(index)))
#define FORTRAN(name, declared, passed) \\
    EXPORT void name declared \\
    {{ \\
        static void (*next) declared; \\
        const void *outer = self.fortran; \\
        if (!next) \\
            next = (void (*) declared)found(#name); \\
        if (!outer) \\
            self.fortran = __builtin_return_address(0); \\
        next passed; \\
        self.fortran = outer; \\
    }}
"""


def _wrapper(prototype: Prototype, index: int, number: int, arguments: bool = False) -> str:
    kind, parts = roles.kind(prototype.standard), _parts(prototype)
    given = ", ".join(prototype.names)
    status = parts.get("status") or parts.get("statuses") if kind in TELLS else None
    words = {
        "name": prototype.name, "index": index, "number": number, "given": given, "comma": given and given + ", ",
        "declared": "".join(f"{parameter}, " for parameter in prototype.parameters),
        "alone": ", ".join(prototype.parameters) or "void",
        "passed": ", ".join("c.status" if name == status else name for name in prototype.names),
        "last": '\n    finish("finalize");' if kind == "finalize" else "",
    }  # fmt: skip
    if kind == "init" and not arguments:
        return (INIT + NAMES).format(**words)
    words |= {key: code.format(**parts) for key, code in SHAPES.get(kind, Shape())._asdict().items()}
    if arguments:
        return checked.wrapper(prototype, kind, words) + NAMES.format(**words)
    return (WRAPPER + NAMES).format(**words)


def fortran(directories: Sequence[str]) -> set[str]:
    """The names of functions of MPI in Fortran that the libraries in these directories have."""
    found: set[str] = set()
    for path in {path.resolve() for place in directories for glob in BINDINGS for path in Path(place).glob(glob)}:
        found.update(name.decode() for name in re.findall(rb"\0p?(mpix?_[a-z0-9_]+_)(?=\0)", path.read_bytes()))
    return found


def _fortran(prototype: Prototype, there: Container[str]) -> str:
    """Wrappers of its names in Fortran: all arguments are addresses, and those of texts have lengths at the end."""
    count = len(prototype.names) + 1 + sum("char" in parameter for parameter in prototype.parameters)
    declared = ", ".join(f"W a{at}" for at in range(max(4, count)))
    passed = declared.replace("W ", "")
    names = [prototype.name.lower() + end for end in FORTRAN]
    return "".join(f"FORTRAN({name}, ({declared}), ({passed}))\n" for name in names if name in there)


def source(text: str, there: Container[str] = (), arguments: bool = False) -> str:
    """The wrappers for this `mpi.h`, in C; and of those of its functions in Fortran that are there."""
    found = wrapped(text, arguments)
    others = sorted({prototype.standard for prototype in found if prototype.standard not in roles.ROLES})
    numbers = roles.NUMBERS | {name: number for number, name in enumerate(others, roles.FIRST_OTHER)}
    functions = json.dumps(roles.functions({numbers[name]: name for name in others}))
    names = ", ".join(f'"P{prototype.name}"' for prototype in found)
    made = [HEAD.format(count=len(found), names=names, functions=json.dumps(functions))]
    for index, prototype in enumerate(found):
        made.append(_wrapper(prototype, index, numbers[prototype.standard], arguments))
        if not prototype.name.endswith("_c"):
            made.append(_fortran(prototype, there))
    if arguments:
        made.insert(0, '#include "checking.h"\n')
        made.append(checked.tables({prototype.standard: numbers[prototype.standard] for prototype in found}))
    return "".join(made)


def _ran(*command: str) -> str:
    """What a compiler prints. Raises `UsageError` with what it says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise UsageError(f"cannot run the compiler {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise UsageError(f"{' '.join(command[:8])}:\n{(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout


def header(mpicc: str) -> str:
    """Its `mpi.h`, preprocessed. Raises `UsageError`."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "mpi_h.c")
        path.write_text("#include <mpi.h>\n")
        return _ran(*words(mpicc), "-E", "-P", str(path))


def _shown(mpicc: str) -> list[str]:
    """The command behind a wrapper; empty if it does not say it."""
    for option in ("-show", "-showme"):
        done = subprocess.run([*words(mpicc), option], capture_output=True, text=True)
        if done.returncode == 0:
            return words(done.stdout)
    return []


def library(mpicc: str, arguments: bool = False) -> Path:
    """The library that notes the calls of programs of this MPI, with their arguments or without, built if need be.
    Raises `UsageError`."""
    sources = ("pmpi.c", "checking.c") if arguments else ("pmpi.c",)
    text, shown = header(mpicc), _shown(mpicc)
    directories = [word[2:] for word in shown if word.startswith("-L") and len(word) > 2]
    code = source(text, fortran(directories), arguments)
    parts = [code, *(shown or [mpicc]), _ran(*words(mpicc), "--version"), os.environ.get("LD_LIBRARY_PATH", "")]
    parts += [SOURCES.joinpath(name).read_text("utf-8") for name in (*sources, *HEADERS)] + list(FLAGS)
    key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
    target = cache() / f"trace-{__version__}-{key}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        wrappers, made = Path(place, "wrappers.c"), Path(place, "made.so")
        wrappers.write_text(code)
        paths = [f"-Wl,-rpath,{directory}" for directory in directories]
        compiled = [str(wrappers), *(str(SOURCES / name) for name in sources)]
        _ran(*words(mpicc), *FLAGS, f"-I{SOURCES}", *compiled, "-o", str(made), *paths, "-ldl", "-lpthread")
        os.replace(made, target)
    return target
