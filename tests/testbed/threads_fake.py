#!/usr/bin/env python3
"""Stands for both programs of a build: it leaves the trace that a test wants, in two regions with a digest of `u` each.

`FAKE` has words: `b2` B has another digest in region 2; `b2.3` in its third run alone; `b1`, `b1.2` in region 1, in
pass 2, in the second run of that; `traced`, `traced.3` B writes another value in region 2 if that is traced; `random`
each digest of region 1 is new; `none` no trace; `kill`, `fail`, `hang`: B ends so; `ranks` two traces, of which the
second differs; `much` A stops recording at level full; `prints` B prints other words; `sum=1.5,1.6` A and B print
these; `clock` each run prints another number.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from pathlib import Path

SITES = (
    {"number": 1, "type": "region", "name": "", "file": "heat.f90", "line": 3, "line2": 5},
    {"number": 2, "type": "array", "name": "u", "file": "heat.f90", "line": 5, "line2": 5},
    {"number": 3, "type": "variable-write", "name": "u(1)", "file": "heat.f90", "line": 4, "line2": 4},
)
REGION, REGION_END, ENTER, LEAVE, WRITE, DIGEST, MORE = 1, 2, 3, 4, 8, 10, 255
REAL8 = 6
CLASSES = "regions", "variables", "procedures"


def main() -> None:
    side = "A" if sys.argv[0].endswith(".serial") else "B"
    said = set(os.environ.get("FAKE", "").split())
    turn = count(Path(f"{sys.argv[0]}.{'pass-2' if os.environ.get('SP_REGIONS') else 'pass-1'}"))
    for rank in ("-0", "-1") if "ranks" in said else ("",):
        if "none" not in said:
            trace(Path(os.environ["SP_DIR"] + rank), side, said, turn, rank)
    print("other" if "prints" in said and side == "B" else "done")
    numbers = [word.partition("=")[2].split(",") for word in said if word.startswith("sum=")]
    print("sum", time.time_ns() if "clock" in said else numbers[0][side == "B"] if numbers else 1)
    sys.stdout.flush()
    if side == "B" and "kill" in said:
        os.kill(os.getpid(), signal.SIGKILL)
    if side == "B" and "fail" in said:
        print("it is all wrong", file=sys.stderr)
        sys.exit(3)
    if side == "B" and "hang" in said:
        time.sleep(600)


def count(path: Path) -> int:
    """The how manieth run of this program this is."""
    with path.open("a") as file:
        file.write(".")
    return path.stat().st_size


def trace(where: Path, side: str, said: set[str], turn: int, rank: str) -> None:
    level = os.environ["SP_LEVEL"]
    regions = os.environ.get("SP_REGIONS") or None
    mine = side == "B" and rank in ("", "-1")
    other = mine and {"b2", f"b2.{turn}"} & said
    early = mine and regions is not None and {"b1", f"b1.{turn}"} & said
    digests = [time.time_ns() if "random" in said else 9 if early else 7, 9 if other else 8]
    data = b"SPTHRDS1" + struct.pack("<IIQ", 0, os.getpid(), 0) + bytes(40)
    for visit, digest in enumerate(digests, 1):
        inside = regions is not None and str(visit) in regions.split(",")
        data += record(1, REGION, visit)
        if inside:
            wrong = mine and visit == 2 and bool({"traced", f"traced.{turn}"} & said)
            value = struct.unpack("<Q", struct.pack("<d", 2.0 if wrong else 1.0))[0]
            data += record(1, ENTER, visit) + record(3, WRITE, value, REAL8) + record(1, LEAVE, visit)
            digest = (
                digest if wrong or visit == 1 or "b2" not in said else 8
            )  # what is traced is right, unless it is to be wrong
        data += record(2, DIGEST, 100, REAL8) + record(2, MORE, digest) + record(2, MORE, 0)
        data += record(1, REGION_END, visit)
    stopped = "limit 160000000" if "much" in said and side == "A" and level == "full" else None
    about = {
        "format": 1, "build": "x", "level": dict.fromkeys(CLASSES, level), "regions": regions, "edges": None,
        "statistics": False, "threads": 1, "ended": "exit", "stopped": stopped,
    }  # fmt: skip
    where.mkdir()
    (where / "run.json").write_text(json.dumps(about))
    (where / "sites.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ({"format": 1, "build": "x"}, *SITES)))
    (where / "00000.ev").write_bytes(data + bytes(64))


def record(site: int, kind: int, value: int, type: int = 0) -> bytes:
    return struct.pack("<IHBBQ", site, 0, type, kind, value)


if __name__ == "__main__":
    main()
