"""Sixteen bugs, planted in the programs of `threads_corpus` as patches, with the lines at which each is seen.

Without OpenMP all of them are right. A race may show at more than one line: `where` are those at which the first
wrong value is one of the bug, and no others. `iteration` is given if the schedule decides it, and not chance.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from testbed.threads_corpus import BY_NAME, Program


class Bug(NamedTuple):
    """`how`: "line" (exact), "region" (the region that begins at the first line of `where`) or "warning" (by `build`,
    before any run). `serial_differs`: also without OpenMP it prints other numbers than the correct program, as it is
    another program and a right one: all that counts is that OpenMP changes them."""

    name: str
    program: str
    patch: tuple[tuple[str, str], ...]
    where: tuple[tuple[int, str], ...]
    variables: tuple[str, ...]
    iteration: tuple[int, ...] | None = None
    how: str = "line"
    schedule: str = "static"
    serial_differs: bool = False

    @property
    def of(self) -> Program:
        return BY_NAME[self.program]

    def text(self) -> str:
        text = self.of.path.read_text()
        for old, new in self.patch:
            assert text.count(old) == 1, (self.name, text.count(old), old)
            text = text.replace(old, new)
        return text

    def write(self, directory: Path) -> Path:
        path = directory / f"bug_{self.of.file}"
        path.write_text(self.text())
        return path


SOFT = "            IF (I .EQ. 1) SOFT = 0.01D0\n"
BUGS = (
    Bug(
        "missing private", "nbody",
        (("C$OMP+PRIVATE(I, J, K, D, R2, W)", "C$OMP+PRIVATE(I, J, K, R2, W)"),),
        ((27, "D(K) ="), (28, "R2 ="), (32, "F(K,I) =")), ("d", "r2", "f"),
    ),
    Bug(
        "missing reduction", "redblack",
        (("private(i) reduction(+: total)", "private(i)"),),
        ((31, "total = total"),), ("total",),
    ),
    Bug(
        "missing critical", "histogram",
        (("      !$omp critical\n", ""), ("      !$omp end critical\n", "")),
        ((37, "check = product"), (39, "check = mod"), (41, "product = check")), ("product", "check"),
    ),
    Bug(
        "missing barrier", "blocks",
        (("C$OMP BARRIER\n", ""),),
        ((53, "RHO(I) ="), (17, "FLUX(I) ="), (18, "FLUX(I) ="), (42, "DT = MAX"), (44, "DT = 0.5")),
        ("rho", "flux", "dt"),
    ),
    Bug(
        "missing ordered", "pipeline",
        (("do ordered private", "do private"), ("    !$omp ordered\n", ""), ("    !$omp end ordered\n", "")),
        ((26, "state ="), (27, "written ="), (28, "out(")), ("state", "written", "out"),
    ),
    Bug(
        "loop variable shared", "jacobi",
        (("    !$omp parallel do private(i) schedule", "    !$omp parallel do shared(i) schedule"),),
        ((27, "do i ="), (28, "a(i, j) =")), ("i", "a"), how="warning",
    ),
    Bug(
        "uninitialised private", "jacobi",
        (("private(i) reduction", "private(i, h) reduction"),),
        ((20, "b(i, j) ="),), ("h", "b"), (2,),
    ),
    Bug(
        "uninitialised firstprivate", "nbody",
        (
            ("REAL*8 ENERGY", "REAL*8 ENERGY, SOFT"),
            ("C$OMP PARALLEL DO DEFAULT(SHARED)", "C$OMP PARALLEL DO FIRSTPRIVATE(SOFT)"),
            ("          DO K = 1, 3\n            F(K,I) = 0", SOFT + "          DO K = 1, 3\n            F(K,I) = 0"),
            ("            R2 = 0.01D0", "            R2 = SOFT"),
        ),
        ((26, "R2 = SOFT"),), ("soft", "r2"), (7,),
    ),
    Bug(
        "lastprivate forgotten", "lu",
        (("private(i) lastprivate(top)", "private(i, top)"),),
        ((30, "x(k + 1) ="),), ("x", "top"),
    ),
    Bug(
        "dependence between iterations", "redblack",
        (("do i = 2 + mod(j + colour, 2), n - 1, 2", "do i = 2, n - 1"),),
        ((16, "r ="), (17, "u(i, j) =")), ("u", "r"), serial_differs=True,
    ),
    Bug(
        "wrong bound", "jacobi",
        (
            ("integer :: i, j, k\n", "integer :: i, j, k, last\n  !$ integer, external :: omp_get_max_threads\n"),
            ("    !$omp parallel do private(i) reduction", "    last = n - 1\n"
             "    !$ last = last - mod(n - 2, omp_get_max_threads())\n    !$omp parallel do private(i) reduction"),
            ("reduction(max: change) schedule(runtime)\n    do j = 2, n - 1",
             "reduction(max: change) schedule(runtime)\n    do j = 2, last"),
        ),
        ((19, "!$ last ="), (20, "!$omp parallel do"), (21, "do j = 2, last")), ("last",),
    ),
    Bug(
        "nowait", "stencil",
        (("        g%next(i, j) = mean(g%now, i, j)\n      end do\n    end do\n    !$omp end do",
          "        g%next(i, j) = mean(g%now, i, j)\n      end do\n    end do\n    !$omp end do nowait"),),
        ((19, "near(k) ="), (21, "m ="), (34, "g%next(i, j) ="), (40, "g%now(2:g%nx - 1, j) =")),
        ("near", "m", "next", "now", "u"),
    ),
    Bug(
        "copyin", "blocks",
        ((" COPYIN(GAMMA, LIMIT)", ""),),
        ((17, "FLUX(I) ="),), ("gamma", "flux"), (31,),
    ),
    Bug(
        "static local in a called procedure", "stencil",
        (("real(8) :: m, near(9)", "real(8) :: m\n    real(8), save :: near(9)"),),
        ((20, "near(k) ="), (22, "m ="), (35, "g%next(i, j) =")), ("near", "m", "next"),
    ),
    Bug(
        "rounding", "nbody",
        (("REAL*8 ENERGY", "REAL*4 ENERGY"),),
        ((38, "REDUCTION(+:ENERGY)"), (43, "ENERGY =")), ("energy",), how="warning",
    ),
    Bug(
        "tie", "pipeline",
        (("if (total < 1 - 1d-9) then", "if (total < 1) then"),),
        ((15, "if (total < 1)"), (16, "weights(1) =")), ("weights", "total"), serial_differs=True,
    ),
)  # fmt: skip
