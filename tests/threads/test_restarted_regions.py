"""`crash-test` of a program whose regions are recorded: the first wrong one after the restart is named."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from safepoint.threads import kinds, restarted

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
