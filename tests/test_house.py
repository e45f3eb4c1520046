"""The rules of the house that a program can check; `make check` runs them. They read the source, not the behaviour."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import safepoint
from safepoint import SafepointError, Session, errors

HOUSE = Path(__file__).parents[1]
PACKAGE = HOUSE / "safepoint"
LAYERS = (
    "errors", "interrupts", "times", "pace", "disk", "codec", "manifest", "record", "ranks", "store", "save", "restore",
    "opening", "choose", "ledger", "stop", "when", "session", "__init__", "__main__",
)  # fmt: skip
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))
LONGEST_FUNCTION, LONGEST_PACKAGE = 60, 5700  # lines; of the package, lines of code: docs/design.md says what for
each_module = pytest.mark.parametrize("module", MODULES)
COMMANDS = sorted(f"cli/{path.stem}" for path in (PACKAGE / "cli").glob("*.py"))


def tree(module: str) -> ast.Module:
    path = PACKAGE / f"{module}.py"
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a module imports, at the top, in functions and under conditions."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = ".".join(name for name in ("safepoint" if node.level else "", node.module or "") if name)
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def own(name: str) -> str | None:
    """The module of the package that an import reaches; None if it is another package's."""
    first, _, rest = name.partition(".")
    if first != "safepoint":
        return None
    module = rest.partition(".")[0]
    return module if module in MODULES else "__init__"


def test_every_module_has_its_place_among_the_layers() -> None:
    assert sorted(LAYERS) == MODULES
    assert {path.parent.name for path in PACKAGE.rglob("*.py")} == {"safepoint", "cli"}


@each_module
def test_imports_point_only_upwards_in_the_table_of_modules(module: str) -> None:
    """DESIGN 8: a module knows those above it, so that each can be read, and tested, without those below."""
    above = LAYERS[: LAYERS.index(module)]
    wrong = [(line, name) for line, name in imported(module) if own(name) not in (None, "errors", *above)]
    assert not wrong


@pytest.mark.parametrize("module", [module for module in MODULES if module != "__main__"])
def test_the_library_knows_nothing_of_its_command_line(module: str) -> None:
    """So that a program pays nothing for it, and the core can be read without it."""
    assert not [(line, name) for line, name in imported(module) if f"{name}.".startswith("safepoint.cli.")]


FOREIGN = ("mpi4py", "numpy", "rich", "click", "h5py", "psutil", "inotify_simple")


@each_module
def test_no_module_imports_what_only_its_users_may_have(module: str) -> None:
    """DESIGN 7: the library is given a communicator, and never looks at the contents of a file."""
    assert not [(line, name) for line, name in imported(module) if name.split(".")[0] in FOREIGN]


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


def dangerous(module: str, name: str) -> bool:
    return name in DURABLE.get(module, ()) or "*" in DURABLE.get(module, ())


def disk_work(module: str) -> Iterator[tuple[int, str]]:
    """Line and name of what only `disk` may do: by attribute, by an imported name, or by opening a file for writing."""
    alias: dict[str, str] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            alias |= {each.asname or each.name: each.name for each in node.names}
    for line, name in imported(module):
        source, _, what = name.rpartition(".")
        if dangerous(source, what) or dangerous(name, "*"):
            yield line, name
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if dangerous(alias.get(node.value.id, ""), node.attr):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            mode = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
            if mode and not (isinstance(mode[0], ast.Constant) and set(str(mode[0].value)) <= set("rbt")):
                yield node.lineno, f"open(..., {ast.unparse(mode[0])})"


@pytest.mark.parametrize("module", [module for module in MODULES if module != "disk"])
def test_only_disk_does_what_makes_data_survive(module: str) -> None:
    """DESIGN 8: else `faultdisk` would not see it, and no test would cut the power there."""
    assert not list(disk_work(module))


def test_disk_itself_would_not_pass_that() -> None:
    """Else the test before this one would look for the wrong things."""
    seen = {name for _, name in disk_work("disk")}
    assert seen >= {
        "os.fsync", "os.replace", "os.unlink", "os.rmdir", "os.truncate", "os.symlink", "fcntl.ioctl",
        "fcntl.F_SETLEASE", "filelock", "open(..., 'xb')",
    }  # fmt: skip


FLUSHES = {"fsync", "fdatasync", "sync", "lockf", "ftruncate", "truncate"}


@pytest.mark.parametrize("module", COMMANDS)
def test_no_command_makes_data_durable_or_takes_a_lock_by_itself(module: str) -> None:
    """DESIGN 8: that is what `disk` is for; below the side directory a command leaves all changes to the library."""
    found = [(line, name) for line, name in disk_work(module) if name.partition(".")[0] in ("fcntl", "filelock")]
    found += [(line, name) for line, name in disk_work(module) if name.rpartition(".")[2] in FLUSHES]
    assert not found


def test_importing_safepoint_loads_nothing_heavy() -> None:
    """DESIGN 7: a serial program pays nothing for MPI, and a start nothing for what it may never use: each of ten
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


@pytest.mark.parametrize("module", [*MODULES, *COMMANDS])
def test_every_function_fits_a_screen(module: str) -> None:
    long = [
        (node.name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(tree(module))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
        if node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert not long


def code_lines(text: str) -> int:
    """Lines of code as cloc counts them: without blank lines, comments and docstrings."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_the_package_can_be_read_in_an_evening() -> None:
    lengths = {module: code_lines((PACKAGE / f"{module}.py").read_text(encoding="utf-8")) for module in MODULES}
    assert sum(lengths.values()) <= LONGEST_PACKAGE, lengths


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


@pytest.mark.parametrize("module", [module for module in MODULES if module != "errors"])
def test_public_errors_are_defined_in_one_place(module: str) -> None:
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ClassDef)
    }
    assert not [name for name, those in bases.items() if those & set(ERRORS)]


def test_all_names_of_the_interface_exist_once() -> None:
    assert [name for name in safepoint.__all__ if not hasattr(safepoint, name)] == []
    assert len(set(safepoint.__all__)) == len(safepoint.__all__)


INTERFACE = [name for name in safepoint.__all__ if callable(getattr(safepoint, name))]
VERBS = [name for name, value in vars(Session).items() if inspect.isfunction(value) and not name.startswith("_")]


def test_every_public_name_says_what_it_is() -> None:
    assert [name for name in INTERFACE if not (getattr(safepoint, name).__doc__ or "").strip()] == []


def test_every_verb_of_a_session_says_what_it_promises() -> None:
    assert [name for name in VERBS if not (getattr(Session, name).__doc__ or "").strip()] == []


def test_the_verbs_and_the_functions_of_the_module_are_the_same() -> None:
    functions = {name for name in INTERFACE if inspect.isfunction(getattr(safepoint, name))}
    assert functions - {"init"} <= set(VERBS)
    assert all(getattr(safepoint, name).__doc__ == getattr(Session, name).__doc__ for name in functions - {"init"})


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
