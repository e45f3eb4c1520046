"""The rules of the house that a program can check; `make check` runs them. They read the source, not the behaviour."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import safepoint
from safepoint import SafepointError, Session, errors
from safepoint.disk import Disk

pytestmark = [pytest.mark.house, pytest.mark.xdist_group("house")]  # one worker parses the modules

HOUSE = Path(__file__).parents[2]
PACKAGE = HOUSE / "safepoint"
MODULES = sorted(str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.py"))
ALL_MODULES = frozenset(MODULES)
COMMANDS = [module for module in MODULES if module.startswith("cli/")]
WRITERS = {f"ledger/{name}" for name in ("__init__", "log", "lines", "digest", "scribe")} | {
    *(f"tiers/{name}" for name in ("__init__", "settings", "url", "beside", "note", "names")),
    *(f"nodes/{name}" for name in ("__init__", "placed", "local")),
}
TOOLS = (
    "cli", "run", "report", "ledger", "foreign", "c", "tiers", "nodes", "trace", "matching", "places", "check", "tasks",
    "threads", "__main__",
)  # what a program that saves never loads, but for WRITERS  # fmt: skip
LIBRARY = [module for module in MODULES if module.partition("/")[0] not in TOOLS or module in WRITERS]
COMFORTS = {"pace/", "words", *(f"{name}/" for name in TOOLS if name not in ("cli", "__main__"))}


@functools.cache
def text(module: str) -> str:
    return (PACKAGE / f"{module}.py").read_text("utf-8")


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(text(module), module)


SORTS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Attribute, ast.Call)


@functools.cache
def nodes(module: str) -> dict[type[ast.AST], list[Any]]:
    """What these rules ask of a module, by its sort: each module is walked through once for all of them."""
    found: dict[type[ast.AST], list[Any]] = {sort: [] for sort in SORTS}
    for node in ast.walk(tree(module)):
        if type(node) in found:
            found[type(node)].append(node)
    return found


def functions(module: str) -> list[Any]:
    return nodes(module)[ast.FunctionDef] + nodes(module)[ast.AsyncFunctionDef]


@functools.cache
def imported(module: str, *, types: bool = True) -> list[tuple[int, str]]:
    """Line and full name of everything a module imports, at the top, in functions and under conditions. `types`: also
    what it imports for annotations alone."""
    found, left_out = list[tuple[int, str]](), set[ast.AST]()
    for block in [] if types else tree(module).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            left_out.update(ast.walk(block))
    for node in nodes(module)[ast.Import] + nodes(module)[ast.ImportFrom]:
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = ".".join(name for name in ("safepoint" if node.level else "", node.module or "") if name)
            found += ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
    return found


# Rooms: a file or a folder of the package; those of the command line are the folders in it.


@functools.cache
def room(module: str) -> str:
    first, *rest = module.split("/")
    if first == "cli" and rest and (PACKAGE / "cli" / rest[0]).is_dir():
        return f"cli/{rest[0]}/"
    return f"{first}/" if rest else first


@functools.cache
def reached(name: str) -> str | None:
    """The module of the package that an import reaches; None if it is another package's."""
    first, *rest = name.split(".")
    if first != "safepoint":
        return None
    for parts in (rest, rest[:-1]):
        for module in ("/".join(parts), "/".join([*parts, "__init__"])):
            if parts and module in ALL_MODULES:
                return module
    return "__init__"


@functools.cache
def known() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = {room(module): set() for module in MODULES}
    for module in MODULES:
        others = {room(other) for _, name in imported(module) if (other := reached(name))}
        found[room(module)] |= others - {room(module)}
    return found


def tables(page: str, *heads: str) -> list[list[str]]:
    """The rows of all tables with this head on a page, by cells."""
    text = (HOUSE / "docs" / page).read_text("utf-8")
    head = "".join(rf"\| *{re.escape(name)} *" for name in heads)
    found = re.findall(rf"^{head}\|\n\|[-:|]+\|\n((?:\|.*\n)+)", text, re.M)
    return [[cell.strip() for cell in row.strip("|").split("|")] for rows in found for row in rows.splitlines()]


def named(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def drawn() -> dict[str, tuple[str, str, set[str], set[str]]]:
    """The tables of rooms in docs/reading.md: question, lines, knows, is known by."""
    found = {named(cell)[0]: rest for _, cell, *rest in tables("reading.md", "stop", "room", "question", "lines")}
    whom = {named(cell)[0]: rest for cell, *rest in tables("reading.md", "room", "knows", "is known by")}
    assert list(found) == list(whom)
    return {name: (*found[name], set(named(knows)), set(named(by))) for name, (knows, by) in whom.items()}  # type: ignore[misc]


def test_the_table_of_rooms_says_who_imports_whom_in_both_directions() -> None:
    """docs/reading.md, the rooms: whoever adds an import between rooms sees it in the tour, or takes it out again."""
    found, table = known(), drawn()
    assert set(table) == set(found)
    for name, (question, _, knows, known_by) in table.items():
        assert question.endswith(("?", "."))
        assert knows == found[name], f"{name} knows"
        assert known_by == {r for r in found if name in found[r]}, f"{name} is known by"


def test_the_table_of_rooms_is_about_right_about_their_size() -> None:
    for name, (_, lines, *_) in drawn().items():
        real = sum(physical(module) for module in MODULES if room(module) == name)
        assert abs(int(lines) - real) <= max(20, real // 10), (name, real)


def loops(of: dict[str, set[str]]) -> list[str]:
    """What cannot be put in an order, each after all that it knows."""
    left = {name: set(others) for name, others in of.items()}
    while free := [name for name, others in left.items() if not others & set(left)]:
        for name in free:
            del left[name]
    return sorted(left)


def test_rooms_know_each_other_without_a_loop() -> None:
    assert loops(known()) == []


def test_modules_know_each_other_without_a_loop() -> None:
    at_the_top: dict[str, set[str]] = {}
    for module in MODULES:
        names = [
            f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            for node in tree(module).body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        ]
        at_the_top[module] = {other for name in names if (other := reached(name))} - {module}
    assert loops(at_the_top) == []


AROUND = {"default", "program", "kept", "state/", "callbacks", "spawned"}  # what a program may ask for besides
OUTSIDE = {"__init__", "__main__"} | AROUND | COMFORTS  # the core, with the command line


def core() -> dict[str, set[str]]:
    return {name: others for name, others in known().items() if name not in OUTSIDE and not name.startswith("cli/")}


def test_the_core_knows_neither_comforts_nor_tools() -> None:
    """docs/reading.md, the rooms: the core announces, and they listen; `program` alone ties them to the session."""
    assert {"session", "restart", "saving/", "restoring/", "disk/", "opening"} <= set(core())
    assert {name: others & OUTSIDE for name, others in core().items() if others & OUTSIDE} == {}


def test_the_tour_names_all_that_tells_kinds_of_files_apart() -> None:
    """docs/reading.md, a new kind of file: whoever adds one finds there what must know it."""
    rooms, page = core(), dict[str, set[str]]()
    for module, cell in tables("reading.md", "module", "functions"):
        page.setdefault(named(module)[0], set()).update(named(cell))
    found = {
        module
        for module in MODULES
        if room(module) in rooms
        for node in nodes(module)[ast.Attribute]
        if node.attr in ("kind", "kept") and isinstance(node.ctx, ast.Load)
    }
    assert set(page) == found
    gone = {module: names - {node.name for node in functions(module)} for module, names in page.items()}
    assert not any(gone.values()), gone


@functools.cache
def of_tests() -> dict[Path, set[str]]:
    """The names of the functions in each file of tests."""
    paths = sorted((HOUSE / "tests").rglob("*.py"))
    return {path: set(re.findall(r"^ *def ((?:test|case)_\w+)", path.read_text("utf-8"), re.M)) for path in paths}


def test_every_test_that_a_page_names_is_there() -> None:
    """A name that ends with `…` is the beginning of exactly one. (`evidence.md` is as old as its last run.)"""
    files = [path.name for path in of_tests()]
    tests = [name for names in of_tests().values() for name in names]
    wrong = []
    for page in sorted(HOUSE.glob("docs/**/*.md")):
        for name, end in re.findall(r"\b((?:test|case)_\w+\b)(…|\.py)?", page.read_text("utf-8")):
            if end == ".py":
                found = [each for each in files if each == f"{name}.py"]
            else:
                found = [each for each in tests if each == name or (end and each.startswith(name))]
            if (len(found) != 1 if end else not found) and page.name != "evidence.md":
                wrong.append((page.name, name + end))
    assert wrong == []


def test_the_protocol_says_where_each_test_is() -> None:
    lines = tables("protocol.md", "line", "the crash for which it is there", "test", "file")
    rules = tables("protocol.md", "rule", "else", "test", "file")
    assert lines and rules
    for *_, tests, files in lines + rules:
        defined = {name for file in named(files) for name in of_tests()[HOUSE / "tests" / file]}
        names = [name.rstrip("…") for name in named(tests) if name.startswith(("test_", "case_"))]
        assert all(any(each.startswith(name) for each in defined) for name in names), (tests, files)


def test_the_table_of_promises_names_all_of_their_files() -> None:
    """docs/guarantees.md."""
    rows = tables("guarantees.md", "", "says", "rests on", "test")
    listed = {Path(name).name for *_, cell in rows for name in named(cell) if "/promises/" in name}
    assert listed == {path.name for path in (HOUSE / "tests/promises").glob("*.py")}


def test_engines_do_not_know_the_command_line() -> None:
    assert [
        name for name, others in known().items() if name in COMFORTS and any("cli" in other for other in others)
    ] == []


def test_no_module_has_the_name_of_a_function_that_users_call() -> None:
    """What `safepoint.restore` means must not depend on what was imported before."""
    functions = {name for name in safepoint.__all__ if inspect.isfunction(getattr(safepoint, name))}
    assert len(functions) >= 9
    assert functions & {module.split("/")[0] for module in MODULES} == set()


# Budgets: docs/design.md has a line for each, and for each raise the crash for which it is there.

SPINE = [m for m in MODULES if m in ("__init__", "session", "record") or m.startswith(("saving/", "restoring/"))]
PROTOCOL = ["saving/take", "saving/store", "saving/commit", "restoring/settle", "restoring/stage", "restoring/swap"]
LONGEST_FUNCTION, LONGEST_FILE, LONGEST_SESSION = 45, 350, 600  # physical lines
LONGEST_SPINE, LONGEST_PROTOCOL = 4420, 1200
MOST_ATTRIBUTES, MOST_OPERATIONS = 20, 24


def physical(module: str) -> int:
    return len(text(module).splitlines())


def test_no_two_files_of_tests_have_one_name() -> None:
    """Without packages pytest knows them by that name."""
    names = Counter(path.name for path in (HOUSE / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_file_can_be_held_in_mind() -> None:
    limits = {module: LONGEST_SESSION if module == "session" else LONGEST_FILE for module in MODULES}
    assert {module: physical(module) for module in MODULES if physical(module) > limits[module]} == {}


def test_every_function_fits_a_screen() -> None:
    lengths = {(m, node.name): node.end_lineno - node.lineno + 1 for m in MODULES for node in functions(m)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_the_spine_and_the_protocol_can_be_read_in_an_evening() -> None:
    assert sum(map(physical, SPINE)) <= LONGEST_SPINE
    assert sum(map(physical, PROTOCOL)) <= LONGEST_PROTOCOL


def test_the_budgets_are_those_of_the_design() -> None:
    text = (HOUSE / "docs/design.md").read_text("utf-8").replace(",", "")
    for budget in (LONGEST_FUNCTION, LONGEST_FILE, LONGEST_SESSION, LONGEST_SPINE, LONGEST_PROTOCOL, MOST_ATTRIBUTES,
                   MOST_OPERATIONS):  # fmt: skip
        assert re.search(rf"\| {budget}\b", text), budget


def test_a_session_has_few_attributes_and_a_disk_few_operations(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_text("u.dat\n")
    with contextlib.closing(Session(tmp_path)) as session:
        session.restore(), session.due(), session.should_stop()
        assert len(vars(session)) <= MOST_ATTRIBUTES, sorted(vars(session))
    operations = [name for name in dir(Disk) if not name.startswith("_")]
    assert len(operations) <= MOST_OPERATIONS, operations


def test_nothing_is_given_a_disk_and_a_root() -> None:
    """A root knows its disk."""
    pairs = re.compile(r"\(\s*(?:self, )?(?:self\.)?_?disk(?:: Disk)?, (?:self\.)?_?root\b(?!\.)")
    assert {module: found for module in MODULES if (found := pairs.findall(text(module)))} == {}


GIVEN = {("state/npz", "numpy")}  # what the program has in memory is arrays of numpy, if it wants that to be saved
FOREIGN = ("mpi4py", "numpy", "rich", "click", "h5py", "psutil", "inotify_simple", "scipy", "dask", "distributed",
           "tree_sitter", "fparser")  # fmt: skip


def test_no_module_imports_what_only_its_users_may_have() -> None:
    """The library is given a communicator, and never looks at the contents of a file."""
    names = [(module, line, name.split(".")[0]) for module in LIBRARY for line, name in imported(module)]
    assert [each for each in names if each[2] in FOREIGN and (each[0], each[2]) not in GIVEN] == []


DURABLE = {
    "os": {
        "fsync", "fdatasync", "sync", "rename", "renames", "replace", "unlink", "remove", "removedirs", "rmdir",
        "mkdir", "makedirs", "truncate", "ftruncate", "symlink", "link", "chmod", "utime", "open", "write", "pwrite",
        "lockf", "sendfile", "copy_file_range", "mkfifo", "mknod",
    },
    "fcntl": {"*"},  # flock, lockf, ioctl, F_SETLEASE
    "shutil": {"*"},
    "ctypes": {"*"},
    "mmap": {"*"},
    "pathlib": {"*"},
    "tempfile": {"*"},
    "filelock": {"*"},
}  # fmt: skip


# What lies in a temporary directory need not survive, nor what goes into a pipe; and a directory may be told as a path.
HARMLESS = {
    "kept": {"tempfile", "tempfile.TemporaryDirectory", "pathlib.Path"}, "program": {"pathlib.Path"},
    "tiers/beside": {"os.write"},
}  # fmt: skip


def dangerous(module: str, name: str) -> bool:
    return name in DURABLE.get(module, ()) or "*" in DURABLE.get(module, ())


def disk_work(module: str) -> Iterator[tuple[int, str]]:
    """Line and name of what only `disk/` may do: by attribute, by imported name, or by opening a file for writing."""
    alias: dict[str, str] = {}
    for node in nodes(module)[ast.Import]:
        alias |= {each.asname or each.name: each.name for each in node.names}
    for line, name in imported(module, types=False):
        source, _, what = name.rpartition(".")
        if dangerous(source, what) or dangerous(name, "*"):
            yield line, name
    for node in nodes(module)[ast.Attribute]:
        if isinstance(node.value, ast.Name) and dangerous(alias.get(node.value.id, ""), node.attr):
            yield node.lineno, f"{node.value.id}.{node.attr}"
    for node in nodes(module)[ast.Call]:
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            mode = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
            if mode and not (isinstance(mode[0], ast.Constant) and set(str(mode[0].value)) <= set("rbt")):
                yield node.lineno, f"open(..., {ast.unparse(mode[0])})"


def test_only_disk_does_what_makes_data_survive() -> None:
    """docs/reading.md, the tests: else `faultdisk` would not see it, and no test would cut the power there."""
    others = [module for module in LIBRARY if not module.startswith("disk/")]
    found = [(module, line, name) for module in others for line, name in disk_work(module)]
    assert [each for each in found if each[2] not in HARMLESS.get(each[0], ())] == []


def test_disk_itself_would_not_pass_that() -> None:
    """Else the test before this one would look for the wrong things."""
    seen = {name for module in MODULES if module.startswith("disk/") for _, name in disk_work(module)}
    assert seen >= {
        "os.fsync", "os.replace", "os.unlink", "os.rmdir", "os.truncate", "os.symlink", "fcntl.ioctl",
        "fcntl.F_SETLEASE", "filelock", "open(..., 'xb')",
    }  # fmt: skip


FLUSHES = {"fsync", "fdatasync", "sync", "lockf", "ftruncate", "truncate"}


def test_no_command_makes_data_durable_or_takes_a_lock_by_itself() -> None:
    """That is what `disk` is for; below the side directory a command leaves all changes to the library."""
    found = [(module, line, name.split(".")) for module in COMMANDS for line, name in disk_work(module)]
    assert [each for each in found if each[2][0] in ("fcntl", "filelock") or each[2][-1] in FLUSHES] == []


def test_importing_safepoint_loads_nothing_heavy() -> None:
    """A serial program pays nothing for MPI, and a start nothing for what it may never use: each of ten
    thousand ranks would. `benchmarks/start.py` measures it."""
    names = (
        "mpi4py", "numpy", "zstandard", "rich", "filelock", "click", "safepoint.cli", "psutil", "inotify_simple",
        "asyncio", "ctypes", "dataclasses", "datetime", "decimal", "difflib", "email", "hashlib", "http", "inspect",
        "locale", "multiprocessing", "pickle", "random", "shutil", "socket", "statistics", "subprocess", "tarfile",
        "tempfile", "urllib.request", "uuid", "zipfile",
    )  # fmt: skip
    code = f"""
import sys
sys.path.insert(0, {str(HOUSE)!r})
before = set(sys.modules)
import safepoint
assert safepoint.__file__.startswith({str(HOUSE)!r}), safepoint.__file__
print(*sorted(set({names!r}) & (set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-I", "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


# Errors and the interface.

CLASSES = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
ERRORS = {name: value for name, value in CLASSES.items() if issubclass(value, SafepointError)}


def test_every_error_has_a_code_of_its_own() -> None:
    """G7: programs that cannot catch Python exceptions tell them apart by it."""
    codes = [each.code for each in ERRORS.values()]
    assert len(set(codes)) == len(codes) and all("code" in vars(each) for each in ERRORS.values())


def test_the_table_of_errors_lists_each_with_its_code() -> None:
    table = re.findall(r"^\W*(\w+Error)\s+(\d+)$", errors.__doc__ or "", re.M)
    assert sorted(table) == sorted((name, str(each.code)) for name, each in ERRORS.items())


def test_every_error_is_one_of_safepoint_and_exported() -> None:
    assert ERRORS == CLASSES
    assert set(ERRORS) <= set(safepoint.__all__)
    assert all(getattr(safepoint, name) is each for name, each in ERRORS.items())


def test_public_errors_are_defined_in_one_place() -> None:
    bases = {
        (module, node.name): {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for module in MODULES
        if module != "errors"
        for node in nodes(module)[ast.ClassDef]
    }
    # To the program as `SaveError`; the session alone must know it. The second and the last are of the command line
    # alone, and the third only makes a vertex run again.
    told = {"NotPutBack", "TraceError", "LostValue", "UnlikeTraces"}
    assert not [name for name, those in bases.items() if those & set(ERRORS) and name[1] not in told]


def test_all_names_of_the_interface_exist_once() -> None:
    assert [name for name in safepoint.__all__ if not hasattr(safepoint, name)] == []
    assert len(set(safepoint.__all__)) == len(safepoint.__all__)


INTERFACE = [name for name in safepoint.__all__ if callable(getattr(safepoint, name))]
VERBS = [name for name, _ in inspect.getmembers(Session, inspect.isfunction) if not name.startswith("_")]


def test_every_public_name_says_what_it_is() -> None:
    assert [name for name in INTERFACE if not (getattr(safepoint, name).__doc__ or "").strip()] == []


def test_every_verb_of_a_session_says_what_it_promises() -> None:
    assert [name for name in VERBS if not (getattr(Session, name).__doc__ or "").strip()] == []


def test_the_verbs_and_the_functions_of_the_module_are_the_same() -> None:
    functions = {name for name in INTERFACE if inspect.isfunction(getattr(safepoint, name))}
    functions -= {"init", "atomic", "mark"}  # these need no session
    assert functions <= set(VERBS)
    for name in functions - {"load_state"}:  # which may begin one
        verb, function = (inspect.signature(getattr(where, name)).parameters for where in (Session, safepoint))
        assert [(p.name, p.kind, p.default) for p in verb.values()][1:] == [
            (p.name, p.kind, p.default) for p in function.values()
        ], name


# The repository.


def repository() -> list[Path]:
    """Every file that is in the repository, or would be with `git add`."""
    if shutil.which("git") is None or not (HOUSE / ".git").exists():
        pytest.skip("needs git and a checkout: the rule is about the files of the repository")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True).stdout.split("\0")
    return [HOUSE / name for name in names if name and (HOUSE / name).is_file()]


def test_no_module_is_called_by_what_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "core", "base", "manager", "common", "misc"}
    assert not [path for path in repository() if path.suffix == ".py" and path.stem.strip("_") in empty]


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    machine = re.compile(r"(?<![\w.~$}-])(/(?:home|root|work|Users)/|/tmp/[v]\b)")
    found = []
    for path in repository():
        data = path.read_bytes()
        if b"\0" not in data:
            lines = enumerate(data.decode(errors="replace").splitlines(), 1)
            found += [f"{path.relative_to(HOUSE)}:{number}: {line}" for number, line in lines if machine.search(line)]
    assert not found, "\n".join(found)


def test_nobody_is_told_to_install_safepoint_by_that_name() -> None:
    """On PyPI it is somebody else's: what works is `pip install .` in this directory."""
    named = re.compile(r"pip3? install (-\S+ )*['\"]?safepoint\b")
    texts = [path for path in repository() if path.suffix in (".py", ".md", ".sh") and path.stem != "CHANGELOG"]
    assert [path for path in texts if named.search(path.read_text("utf-8"))] == []


def test_no_file_is_both_ignored_and_kept() -> None:
    """What a build makes does not belong into the repository."""
    repository()
    command = ["git", "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True)
    assert done.stdout.replace("\0", "\n") == ""
