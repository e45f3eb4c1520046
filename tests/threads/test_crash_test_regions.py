"""`safepoint crash-test` of a program that `safepoint threads build` has made names the first wrong region too."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.paths import HOUSE
from testbed.tried import SOLVER, planted, try_out

from safepoint.threads import kinds, restarted

# `safepoint crash-test` of a program that `safepoint threads build` has made names the first wrong region too.

TRACED = """\
import os, shutil, struct
from pathlib import Path
from testbed.threads_fake import DIGEST, MORE, REAL8, REGION, REGION_END, SITES, record
regions = []

def trace():
    where = Path(os.environ["SP_DIR"])
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    assert os.environ["SP_LEVEL"] == "minimal"
    data = b"SPTHRDS1" + struct.pack("<IIQ", 0, os.getpid(), 0) + bytes(40)
    for visit, value in enumerate(regions, 1):
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        data += record(1, REGION, visit) + record(2, DIGEST, 1, REAL8) + record(2, MORE, bits) + record(2, MORE, 0)
        data += record(1, REGION_END, visit)
    rows = [{"format": 1, "build": "x"}, *SITES]
    (where / "run.json").write_text('{"format": 1, "build": "x"}')
    (where / "sites.jsonl").write_text("".join(f"{__import__('json').dumps(row)}\\n" for row in rows))
    (where / "00000.ev").write_bytes(data + bytes(64))

"""


def heat(directory: Path, after_restore: str) -> Path:
    """Each step is a region that makes u."""
    planted(directory)
    text = SOLVER.format(after_restore=after_restore, inside="regions.append(u)")
    path = f"import sys\nsys.path[:0] = [{str(HOUSE / 'tests')!r}, {str(HOUSE)!r}]\n"
    (directory / "heat").write_text(f"#!{sys.executable}\n{path}{TRACED}{text}trace()\n")
    (directory / "heat").chmod(0o755)
    (directory / "heat.serial").touch()
    return directory


def test_the_first_wrong_region_after_the_restart_is_named(tmp_path: Path) -> None:
    said = try_out(heat(tmp_path / "w", "before = u"), tmp_path, command=("./heat",))
    assert (said["verdict"], said["code"]) == ("differs", 1), said
    assert said["region"].startswith(
        "the first region that is wrong after the last restart: heat.f90:3-5, u (region 1;"
    )


def test_a_right_program_has_no_wrong_region(tmp_path: Path) -> None:
    said = try_out(heat(tmp_path / "w", "pass"), tmp_path, command=("./heat",))
    assert (said["verdict"], said["region"]) == ("equal", None), said


# `crash-test` of a program whose regions are recorded: the first wrong one after the restart is named.

SITES = (
    {"number": 1, "type": "region", "name": "", "file": "heat.f90", "line": 7, "line2": 9},
    {"number": 2, "type": "region", "name": "", "file": "heat.f90", "line": 12, "line2": 15},
    {"number": 3, "type": "array", "name": "u", "file": "heat.f90", "line": 12, "line2": 15},
)


def trace(where: Path, regions: Sequence[tuple[int, int]], *, sites: Sequence[dict[str, object]] = SITES) -> str:
    """A run whose regions have these sites, and these digests of u."""
    where.mkdir()
    (where / "run.json").write_text(json.dumps({"format": 1, "build": "x"}))
    lines = [json.dumps(row) for row in ({"format": 1, "build": "x"}, *sites)]
    (where / "sites.jsonl").write_text("\n".join([*lines, ""]))
    data = b"SPTHRDS1" + struct.pack("<IIQ", 0, 1, 0) + bytes(40)
    for visit, (site, digest) in enumerate(regions, 1):
        data += struct.pack("<IHBBQ", site, 0, 0, kinds.REGION, visit)
        data += struct.pack("<IHBBQ", 3, 0, kinds.REAL8, kinds.DIGEST, 100)
        data += b"".join(struct.pack("<IHBBQ", 3, 0, 0, kinds.MORE, half) for half in (digest, 0))
        data += struct.pack("<IHBBQ", site, 0, 0, kinds.REGION_END, visit)
    (where / "00000.ev").write_bytes(data + bytes(32))
    return str(where)


RIGHT = [(1, 10), (2, 11), (2, 12), (2, 13), (2, 14)]  # one region at the start, then a loop over steps


def test_the_first_wrong_region_is_found_from_the_end(tmp_path: Path) -> None:
    """The last life begins with the region of the start, and goes on from the third step."""
    a = trace(tmp_path / "a", RIGHT)
    b = trace(tmp_path / "b", [(1, 10), (2, 13), (2, 99)])
    text = restarted.first_wrong(a, b)
    assert text.endswith("heat.f90:12-15, u (region 3; in A 5)")


def test_equal_regions_are_no_news(tmp_path: Path) -> None:
    a = trace(tmp_path / "a", RIGHT)
    assert restarted.first_wrong(a, trace(tmp_path / "b", RIGHT[3:])) == ""


def test_traces_of_other_sites_or_none_at_all_are_not_judged(tmp_path: Path) -> None:
    a = trace(tmp_path / "a", RIGHT)
    assert restarted.first_wrong(a, trace(tmp_path / "b", [(2, 1)], sites=SITES[:2])) == ""
    assert restarted.first_wrong(a, str(tmp_path / "nothing")) == ""
    (tmp_path / "b" / "run.json").write_text("{")
    assert restarted.first_wrong(a, str(tmp_path / "b")) == ""


def test_only_a_program_with_its_serial_half_beside_it_records(tmp_path: Path) -> None:
    (tmp_path / "heat").touch()
    command = ["mpiexec", "-n", "2", "./heat"]
    assert restarted.variables(command, str(tmp_path), "t") == {}
    (tmp_path / "heat.serial").touch()
    assert restarted.variables(command, str(tmp_path), "t") == {"SP_LEVEL": "minimal", "SP_DIR": "t"}
