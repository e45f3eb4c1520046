"""`safepoint crash-test` of a program that `safepoint threads build` has made names the first wrong region too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from testbed.paths import HOUSE
from testbed.tried import SOLVER, planted, try_out

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
