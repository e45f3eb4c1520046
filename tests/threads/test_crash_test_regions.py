"""`safepoint crash-test` of a program that `safepoint threads build` has made names the first wrong region too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from testbed.paths import HOUSE
from testbed.threads_written import Digest, Region, Table, written
from testbed.tried import SOLVER, planted, try_out

from safepoint.threads import restarted

TRACED = """\
import os, shutil, struct
from pathlib import Path
from testbed.threads_written import Digest, Region, Table, written
regions = []

def trace():
    assert os.environ["SP_LEVEL"] == "minimal"
    shutil.rmtree(os.environ["SP_DIR"], ignore_errors=True)
    bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in regions]
    written(Path(os.environ["SP_DIR"]), Table(), [Region([], after=[Digest("u", (1, each, 0))]) for each in bits])

"""


def heat(directory: Path, after_restore: str) -> Path:
    """Each step is a region that makes u."""
    planted(directory)
    text = SOLVER.format(after_restore=after_restore, inside="regions.append(u)")
    # A life that resumes has regions to do, and leaves its trace before it has finished: whenever it is killed.
    text = text.replace("    safepoint.hide", "    if step < 20: safepoint.hide")
    text = text.replace("safepoint.finish", "if regions: trace()\nsafepoint.finish")
    path = f"import sys\nsys.path[:0] = [{str(HOUSE / 'tests')!r}, {str(HOUSE)!r}]\n"
    (directory / "heat").write_text(f"#!{sys.executable}\n{path}{TRACED}{text}")
    (directory / "heat").chmod(0o755)
    (directory / "heat.serial").touch()
    return directory


@pytest.mark.proof
def test_the_first_wrong_region_after_the_restart_is_named(tmp_path: Path) -> None:
    said = try_out(heat(tmp_path / "w", "before = u"), tmp_path, command=("./heat",))
    assert (said["verdict"], said["code"]) == ("differs", 1), said
    assert said["region"].startswith(
        "the first region that is wrong after the last restart: heat.f90:1-1, u (region 1;"
    )


@pytest.mark.proof
def test_a_right_program_has_no_wrong_region(tmp_path: Path) -> None:
    said = try_out(heat(tmp_path / "w", "pass"), tmp_path, command=("./heat",))
    assert (said["verdict"], said["region"]) == ("equal", None), said


# `crash-test` of a program whose regions are recorded: the first wrong one after the restart is named.


def trace(where: Path, regions: Sequence[tuple[str, int]], first: str = "start") -> str:
    """A run whose regions have these names, and these digests of u."""
    table = Table()
    table.site("region", first)
    written(where, table, [Region([], after=[Digest("u", (100, digest, 0))], name=name) for name, digest in regions])
    return str(where)


RIGHT = [("start", 10), ("step", 11), ("step", 12), ("step", 13), ("step", 14)]


def test_the_first_wrong_region_is_found_from_the_end(tmp_path: Path) -> None:
    """The last life begins with the region of the start, and goes on from the third step."""
    a = trace(tmp_path / "a", RIGHT)
    b = trace(tmp_path / "b", [("start", 10), ("step", 13), ("step", 99)])
    text = restarted.first_wrong(a, b)
    assert text.endswith("heat.f90:3-3, u (region 3; in A 5)")


def test_equal_regions_are_no_news(tmp_path: Path) -> None:
    a = trace(tmp_path / "a", RIGHT)
    assert restarted.first_wrong(a, trace(tmp_path / "b", RIGHT[3:])) == ""


def test_traces_of_other_sites_or_none_at_all_are_not_judged(tmp_path: Path) -> None:
    a = trace(tmp_path / "a", RIGHT)
    assert restarted.first_wrong(a, trace(tmp_path / "b", [("step", 1)], first="another")) == ""
    assert restarted.first_wrong(a, str(tmp_path / "nothing")) == ""
    (tmp_path / "b" / "run.json").write_text("{")
    assert restarted.first_wrong(a, str(tmp_path / "b")) == ""


def test_only_a_program_with_its_serial_half_beside_it_records(tmp_path: Path) -> None:
    (tmp_path / "heat").touch()
    command = ["mpiexec", "-n", "2", "./heat"]
    assert restarted.variables(command, str(tmp_path), "t") == {}
    (tmp_path / "heat.serial").touch()
    assert restarted.variables(command, str(tmp_path), "t") == {"SP_LEVEL": "minimal", "SP_DIR": "t"}
