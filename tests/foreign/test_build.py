"""`safepoint build-c` and `safepoint config`: with which compilers and options the library can be built and linked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from testbed.commands import cli
from testbed.foreign import MPICH, SOURCES, Mpi, each_mpi, library, needs, program, ran
from testbed.paths import EXAMPLES, HOUSE
from testbed.sweep import one_of

import safepoint
from safepoint import c
from safepoint.c import cache as where_it_is_kept
from safepoint.errors import UsageError

pytestmark = needs("cc")
C = Path(safepoint.__file__).parent / "c"
STRICT = "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "safepoint"


def compiled(*command: object, cwd: Path) -> None:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, f"{command}: {done.stderr}"


def test_without_a_home_no_directory_of_that_name_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user without HOME and without a line in passwd, as in containers, nothing expands `~`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for told in (None, "here"):  # a relative one is none either, says its own standard
        monkeypatch.delenv("XDG_CACHE_HOME") if told is None else monkeypatch.setenv("XDG_CACHE_HOME", told)
        assert where_it_is_kept("some").is_relative_to(tempfile.gettempdir()) and not os.listdir()
        monkeypatch.setattr(c, "_tops", lambda: [Path("~/.cache/safepoint")])
        with pytest.raises(UsageError, match=r"is no absolute path\. Set XDG_CACHE_HOME"):
            where_it_is_kept("some")
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_it_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    """C99, POSIX, no extension of a compiler's."""
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    for name in ("safepoint.c", "safepoint_serial.c"):
        compiled(compiler, "-std=c99", *STRICT, "-c", C / name, cwd=tmp_path)


@each_mpi
def test_what_knows_mpi_compiles_without_a_warning(mpi: Mpi, tmp_path: Path) -> None:
    for name in ("safepoint.c", "safepoint_mpi.c"):
        compiled(mpi.cc, "-std=c99", *STRICT, "-c", C / name, cwd=tmp_path)
    for name in ("safepoint.f90", "safepoint_df.f90"):
        compiled(mpi.fc, "-std=f2008", "-Wall", "-Wextra", "-Werror", "-c", C / name, cwd=tmp_path)


def test_the_header_is_one_of_cpp_too(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    (tmp_path / "solver.cpp").write_text(
        '#include "safepoint.h"\nint main() {\n'
        "    int found = 0;\n    long long step = 0;\n"
        "    return safepoint_init(nullptr, nullptr) || safepoint_restore(&found, &step) || safepoint_hide(1) ||\n"
        "           safepoint_close();\n}\n"
    )
    words = library()
    compiled("g++", "-std=c++17", *STRICT, *words[0], "solver.cpp", *words[1], "-o", "solver", cwd=tmp_path)
    (tmp_path / ".safepoint").write_text("u.dat\n")
    assert ran(tmp_path, tmp_path / "solver")[0] == 0


WAYS = {  # how a program is compiled, and in which language; an integer of 64 bits is one of the module too
    "default-integer-8": ("units.f90", ()),
    "static": ("misuse.c", ("-static",)),
    "lto": ("misuse.c", ("-flto", "-O3")),
    "fortran-static": ("units.f90", ("-static",)),
    "static-libgfortran": ("units.f90", ("-static-libgfortran",)),
    "ffpe-trap": ("units.f90", ("-ffpe-trap=invalid,zero,overflow,underflow,denormal",)),
    "bounds": ("units.f90", ("-fcheck=all", "-g", "-Wall", "-Wextra", "-Werror")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_may_be_compiled_and_linked_as_it_likes(way: str, tmp_path: Path) -> None:
    source, options = WAYS[way]
    if source.endswith("f90") and not shutil.which("gfortran"):
        pytest.skip("needs gfortran")
    (tmp_path / ".safepoint").write_text(
        "recl.txt\nstream.dat\nseven.txt\nlines.txt\n" if "f90" in source else "u.dat\n"
    )
    exe = program(source, None, *options, fc="gfortran -fdefault-integer-8" if "integer-8" in way else "gfortran")
    status, output, said = ran(tmp_path, exe, "twice")
    if "f90" in source:
        units(tmp_path, status, output, said)
    else:
        assert status == 0 and output.count("\t0\t") == 9, output + said


def units(work: Path, status: int, output: str, said: str) -> None:
    """What was in the buffers of open units is in the set; and an error without ierr ends the program with its code."""
    assert output.split("\n") == [
        "this very process has called safepoint_init already: call safepoint_close first", "75", ""
    ], said  # fmt: skip
    assert status == 10 and "safepoint: safepoint_hide after the session has ended" in said, said
    assert "Backtrace" not in said and "runtime error" not in said, said
    files = {path.name: path.read_bytes() for path in (work / ".safepoint.d/rank-00000").rglob("set-*2/files/*")}
    first = {path.name: path.read_bytes() for path in (work / ".safepoint.d/rank-00000").rglob("set-*1/files/*")}
    assert files == first and set(files) == {"recl.txt", "stream.dat", "seven.txt", "lines.txt"}
    assert files["recl.txt"] == b"hello\n" and files["seven.txt"] == b"42\n" and files["lines.txt"] == b"of newunit\n"
    assert len(files["stream.dat"]) == 16


def test_it_is_built_once_and_two_at_once_leave_one_that_is_whole(cache: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        command = [sys.executable, "-W", "error", "-m", "safepoint", "config", "--libs"]
        runs = [pool.submit(subprocess.run, command, capture_output=True, text=True) for _ in range(2)]
        outputs = {run.result().stdout for run in runs}
    assert len(outputs) == 1 and Path(outputs.pop().strip()).is_file()
    (home,) = cache.iterdir()
    before = (home / "lib/libsafepoint.a").stat()
    cli("build-c")
    assert (home / "lib/libsafepoint.a").stat() == before
    assert cli("config", "--cflags", "--cc", "cc -DOTHER").exit_code == 0
    assert len(list(cache.iterdir())) == 2  # of other options


def test_a_prefix_has_headers_archive_and_pkg_config(tmp_path: Path) -> None:
    found = json.loads(cli("build-c", "--prefix", tmp_path / "local", "--json").stdout)
    assert found["directory"] == str(tmp_path / "local")
    files = sorted(
        str(path.relative_to(tmp_path / "local")) for path in (tmp_path / "local").rglob("*") if path.is_file()
    )
    assert files == ["include/safepoint.h", "lib/libsafepoint.a", "lib/pkgconfig/safepoint.pc"]
    said = (tmp_path / "local/lib/pkgconfig/safepoint.pc").read_text()
    assert f"Cflags: {found['cflags']}\nLibs: -L{tmp_path / 'local/lib'} -lsafepoint\n" in said
    if shutil.which("pkg-config"):
        command = ["pkg-config", "--cflags", "--libs", "safepoint"]
        done = subprocess.run(
            command, env={"PKG_CONFIG_PATH": str(tmp_path / "local/lib/pkgconfig"), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split() == [*found["cflags"].split(), f"-L{tmp_path / 'local/lib'}", "-lsafepoint"]


@pytest.mark.proof
@pytest.mark.skipif(not MPICH.there, reason="needs mpich")
def test_with_mpi_and_fortran_all_modules_are_there_and_the_serial_library_may_have_the_same_prefix(
    tmp_path: Path,
) -> None:
    cli("build-c", "--prefix", tmp_path, "--mpicc", MPICH.cc, "--fc", MPICH.fc)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file() and "cache" not in path.parts} == {
        "safepoint.h", "safepoint_mpi.h", "safepoint_df.h", "safepoint.mod", "safepoint_df.mod", "libsafepoint_mpi.a",
        "safepoint_mpi.pc",
    }  # fmt: skip
    cli("build-c", "--prefix", tmp_path)
    for name in ("safepoint", "safepoint_mpi"):
        assert f" -l{name}\n" in (tmp_path / f"lib/pkgconfig/{name}.pc").read_text()
        assert (tmp_path / f"lib/lib{name}.a").exists()


def test_blanks_in_a_path_are_written_as_a_shell_reads_them(tmp_path: Path) -> None:
    prefix = tmp_path / "with blanks & more"
    found = json.loads(cli("build-c", "--prefix", prefix, "--cc", "cc '-DA=\"a b\"'", "--json").stdout)
    compile_it = f"cc {found['cflags']} {SOURCES / 'misuse.c'} {found['libs']} -o misuse"
    subprocess.run(["sh", "-c", compile_it], cwd=tmp_path, check=True)
    if shutil.which("pkg-config"):
        path = prefix / "lib/pkgconfig"
        command = (
            f"eval cc $(pkg-config --cflags safepoint) {SOURCES / 'misuse.c'} $(pkg-config --libs safepoint) -o other"
        )
        subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, check=True, env={**os.environ, "PKG_CONFIG_PATH": str(path)}
        )
    (tmp_path / ".safepoint").write_text("u.dat\n")
    assert "safepoint_close()\t0" in ran(tmp_path, tmp_path / "misuse", "just")[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--cc", "no-such-cc"), "cannot run the compiler no-such-cc: No such file or directory"),
        (("--mpicc", "no-such-mpicc"), "cannot run the compiler no-such-mpicc: No such file or directory"),
        (("--fc", "no-such-fortran"), "cannot run the compiler no-such-fortran: No such file or directory"),
        (("--cc", "cc --no-such-option"), "--no-such-option"),
        (("--cc", "cc '-DA"), 'the compiler "cc \'-DA": No closing quotation'),
        (("--cc", " "), "a compiler is given as an empty text"),
        (("--mpicc", "cc"), "mpi.h"),  # a compiler that knows no MPI
    ],
)
def test_a_compiler_that_cannot_do_it_is_named(options: tuple[str, ...], text: str, cache: Path) -> None:
    result = cli("build-c", *options)
    assert result.exit_code == UsageError.code and text in result.output, result.output
    assert not cache.exists() or not list(cache.iterdir())


def test_config_says_what_it_can_say() -> None:
    result = cli("config")
    assert result.exit_code == 2 and "--cflags, --libs or --pkgconfig" in result.output
    both = cli("config", "--cflags", "--libs").stdout.split()
    assert both[0].startswith("-I") and both[1].endswith("libsafepoint.a")


PAGE = (HOUSE / "docs" / "c-and-fortran.md").read_text()


@pytest.mark.proof
@pytest.mark.skipif(not MPICH.there, reason="needs mpich")
@pytest.mark.parametrize("tool", one_of(["make", "cmake"]))
def test_what_the_page_says_for_make_and_cmake(tool: str, tmp_path: Path) -> None:
    """The very lines of docs/c-and-fortran.md build the example, and it runs to its end on two ranks."""
    if missing := [name for name in (tool, "pkg-config") if not shutil.which(name)]:
        pytest.skip(f"needs {', '.join(missing)}")
    (lines,) = re.findall(rf"```{tool}\n(.*?)```", PAGE, re.S)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "safepoint").write_text(f'#!/bin/sh\nexec {sys.executable} -m safepoint "$@"\n')
    (bin_ / "safepoint").chmod(0o755)
    for name, target in (("mpicc", MPICH.cc), ("mpif90", MPICH.fc)):
        (bin_ / name).symlink_to(str(shutil.which(target)))
    environ = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(C.parents[1]), "MPICC": "mpicc"}
    for name in ("heat.c", "heat.f90"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / ("CMakeLists.txt" if tool == "cmake" else "Makefile")).write_text(lines)
    steps = ["make heat"]
    if tool == "cmake":
        path = "$(safepoint config --pkgconfig --mpicc mpicc --fc mpif90)"
        steps = [f"PKG_CONFIG_PATH={path} cmake -S . -B . -DCMAKE_C_COMPILER=mpicc", "cmake --build ."]
    for step in steps:
        done = subprocess.run(step, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / ".safepoint").write_text("heat-{rank}.dat\n")
    status, output, said = ran(tmp_path, *MPICH.started(2, tmp_path / "heat", 40))
    assert status == 0 and "begin at step 0" in output, output + said
