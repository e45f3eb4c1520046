"""What is stored can be checked and brought back without this library: by the lines of docs/format.md and the tools of
the distribution alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from testbed.paths import HOUSE

from safepoint import Session

TOOLS = ("zstd", "xxh128sum", "tar", "sed", "truncate")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (Debian: zstd, xxhash)")
MANIFEST = "u.npy\nbig.vtk compress\nfields/*.dat\nhistory.csv append\nbundle_from = 10\n"
LINES = HOUSE.joinpath("docs/format.md").read_text().split("## Restoring by hand")[1].split("```")[1]


def files(step: int) -> dict[str, bytes]:
    small = {f"fields/a-long-name-{'x' * 90}-{k:03}.dat": b"%d at %d" % (k, step) for k in range(30)}
    large = {"u.npy": os.urandom(200_000), "big.vtk": b"%d is compressible\n" % step * 200_000}
    return large | small | {"history.csv": b"".join(b"row %d\n" % row for row in range(100 * step))}


def write(work: Path, contents: dict[str, bytes]) -> None:
    for name, data in contents.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_bytes(data)


def script(work: Path, lines: str) -> str:
    command, clean = ["bash", "-e", "-u", "-o", "pipefail", "-c", lines], {"PATH": os.environ["PATH"]}
    return subprocess.run(command, cwd=work, check=True, capture_output=True, text=True, env=clean).stdout


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    """A directory of a run that was killed while it wrote, and the files of its last set."""
    (tmp_path / ".safepoint").write_text(MANIFEST)
    session = Session(tmp_path)
    for step in (1, 2):
        last = files(step)
        write(tmp_path, last)
        session.hide(step)
    session.close()
    write(tmp_path, {"u.npy": b"torn", "history.csv": last["history.csv"] + b"row of the lost ste"})
    return tmp_path, last


def test_the_lines_of_the_documentation_bring_everything_back(saved: tuple[Path, dict[str, bytes]]) -> None:
    work, expected = saved
    said = script(work, LINES)
    assert {name: (work / name).read_bytes() for name in expected} == expected
    sums = re.findall(r"\b[0-9a-f]{32}\b", said)
    assert sums[0] == sums[1], "the seal"
    (newest,) = work.glob(".safepoint.d/*/set-*2/record.json")
    content = json.loads(newest.read_bytes())["content"]
    rows = [dict(zip(content["columns"], row, strict=True)) for row in content["files"]]
    told = {row["checksum"] for row in rows if row["path"] in ("u.npy", "big.vtk", "history.csv")}
    assert len(told) == 3 and told <= set(sums[2:])
    assert {row["kept"] for row in rows} == {"raw", "zst", "tar"}


def test_they_bring_back_a_table_that_was_begun_anew_after_a_restart(saved: tuple[Path, dict[str, bytes]]) -> None:
    work, expected = saved
    with Session(work) as session:
        session.restore()
        session.close()
    write(work, {"u.npy": b"torn", "history.csv": b"row of a new table"})
    script(work, LINES)
    assert {name: (work / name).read_bytes() for name in expected} == expected


def test_every_stored_file_is_accepted_by_the_tools(saved: tuple[Path, dict[str, bytes]]) -> None:
    """`zstd -t` accepts each frame, which says its content size and has a checksum; `xxh128sum` and `tar` agree with
    the record about the rest."""
    work, expected = saved
    for record in work.glob(".safepoint.d/*/set-*/record.json"):
        content = json.loads(record.read_bytes())["content"]
        names = set(script(record.parent, "tar -tf bundle.tar").split())
        assert names == {name for name in expected if name.startswith("fields/")}
        for row in content["files"]:
            file = dict(zip(content["columns"], row, strict=True))
            if file["kept"] == "zst":
                frame = f"packed/{file['path']}.zst"
                script(record.parent, f"zstd -t {frame}")
                listed = script(record.parent, f"zstd -lv {frame}")
                assert "XXH64" in listed and re.search(rf"Decompressed Size:.*\({file['size']} B\)", listed)
            elif file["kind"] == "file":
                what = f"files/{file['path']}"
                read = f"cat {what}" if file["kept"] == "raw" else f"tar -xOf bundle.tar {file['path']}"
                assert script(record.parent, f"{read} | xxh128sum").split()[0] == file["checksum"]
                if file["kept"] == "tar":
                    cut = f"tail -c +{file['offset'] + 1} bundle.tar | head -c {file['size']}"
                    assert (
                        script(record.parent, f"set +o pipefail; {cut}").encode()
                        == subprocess.run(
                            ["tar", "-xOf", "bundle.tar", file["path"]],
                            cwd=record.parent,
                            check=True,
                            capture_output=True,
                        ).stdout
                    )
