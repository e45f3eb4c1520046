"""What `save_state` costs beside `numpy.savez`, which only writes the file: 512 MB of arrays, in turn.

python benchmarks/state.py [DIRECTORY] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import safepoint

SIZE = 512 << 20  # bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", help="on the disk that is meant; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as top:
        measure(Path(top), options.rounds)


def measure(top: Path, rounds: int) -> None:
    """The first round warms up. Between two of them the disk has all that was written."""
    state = {name: np.random.default_rng(1).normal(size=SIZE // 4 // 8) for name in ("u", "v", "w", "p")}
    generator = np.random.default_rng(2)
    session = safepoint.Session(prepared(top / "run"))
    session.load_state()
    session.save_state(0, rng=generator)  # the first one waits for the disk
    times: dict[str, list[float]] = {"numpy.savez": [], "save_state": []}
    for step in range(1, rounds + 2):
        for name, seconds in times.items():
            begin = time.perf_counter()
            if name == "numpy.savez":
                np.savez(top / "state.npz", **state)
            else:
                session.save_state(step, rng=generator, **state)
            seconds.append(time.perf_counter() - begin)
            session.wait()
            (top / "state.npz").unlink(missing_ok=True)
    session.close()
    of = {name: seconds[1:] for name, seconds in times.items()}
    ratios = [ours / theirs for ours, theirs in zip(of["save_state"], of["numpy.savez"], strict=True)]
    for name, seconds in of.items():
        print(f"{name:12} median {statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})")
    print(f"ratio        median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def prepared(directory: Path) -> Path:
    directory.mkdir()
    (directory / ".safepoint").write_text("state.npz\n")
    return directory


if __name__ == "__main__":
    main()
