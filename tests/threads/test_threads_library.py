"""The library is built once for each compiler; what is missing or fails is said."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from testbed.traced_threads import needs

from safepoint.errors import UsageError
from safepoint.threads import interface
from safepoint.threads.library import FORTRAN, library


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fake(at: Path, name: str, script: str) -> Path:
    at.mkdir(exist_ok=True)
    path = at / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("gfortran", marks=pytest.mark.proof)])
def test_it_is_built_once_and_has_what_a_program_needs(compiler: str, tmp_path: Path) -> None:
    """Once for each compiler."""
    needs(compiler)
    first = library(compiler)
    fortran = compiler == "gfortran"
    assert sorted(os.listdir(first.include)) == ["libsp_trace.a", "sp_trace.h", *["sp_trace.mod"] * fortran]
    made = first.archive.stat().st_mtime_ns
    assert library(compiler) == first and first.archive.stat().st_mtime_ns == made
    if fortran:
        assert library("gcc").include != first.include
    assert len(list((tmp_path / "cache" / "safepoint").iterdir())) == 1 + fortran


def test_a_compiler_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="cannot run nosuchfortran: No such file"):
        library("nosuchfortran")


def test_what_a_compiler_says_is_shown_and_nothing_half_built_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("gcc")
    broken = fake(
        tmp_path / "bin", "cc-broken", '[ "$1" = --version ] && exit 0; echo no space for temporary files >&2; exit 1'
    )
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(UsageError, match="no space for temporary files"):
        library("gcc")
    assert list((tmp_path / "cache" / "safepoint").iterdir()) == []


def test_without_a_compiler_of_c_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(fake(tmp_path / "bin", "ifx", "echo ifx 2025").parent))
    with pytest.raises(UsageError, match="none of gcc, cc, clang is in PATH; CC names another"):
        library("ifx")


def test_a_fortran_whose_header_of_descriptors_is_not_found_is_not_given_another_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("gcc")
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"ISO_Fortran_binding\.h is not where it is looked for; SP_FC_INCLUDE names"):
        library(str(fake(deep, "frt", "echo Fujitsu")))


def test_a_compiler_without_long_reals_gets_a_module_without_them() -> None:
    whole = interface.text()
    for left_out, kinds in (((), {"10", "16"}), (("x87",), {"16"}), (("quad",), {"10"}), (("x87", "quad"), set())):
        text = interface.without(left_out, whole)
        assert {kind for kind in ("10", "16") if f"real({kind})" in text} == kinds
        assert text.endswith("end module sp_trace\n")


def test_compilers_of_fortran_are_known_by_name() -> None:
    fortran = ["gfortran", "gfortran-12", "x86_64-linux-gnu-gfortran", "flang", "flang-new-19", "ifx", "nvfortran",
               "mpif90", "mpifort", "mpiifort", "ftn", "f95"]  # fmt: skip
    assert [name for name in fortran if not FORTRAN.fullmatch(name)] == []
    assert [
        name for name in ["gcc", "gcc-12", "clang", "cc", "mpicc", "icx", "nvc", "g++"] if FORTRAN.fullmatch(name)
    ] == []
