"""Does an fsync ever return 0 for a name that is lost? As root: `python tests/proof/powercut/lying_fsync.py [ROUNDS]`.

Four threads replace files and fsync their directories on ext4 until it finds an error in itself and aborts its journal.
What an fsync had vouched for must be there when the file system was repaired. It is not always; but no name is lost
after whose fsync one more change went through: that is what `safepoint.save.confirm` rests on.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from testbed.mounts import Volume


def sync(path: Path, data: bytes = b"") -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY if data else os.O_RDONLY)
    try:
        if data:
            os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def work(directory: Path, vouched: list[Path], confirmed: list[Path]) -> None:
    try:
        for number in range(1_000_000):
            path = directory / f"file-{number}"
            sync(path.with_suffix(".new"), b"x" * 100)
            path.with_suffix(".new").rename(path)
            sync(directory)
            vouched.append(path)
            (directory / f"more-{number}").mkdir()
            confirmed.append(path)
    except OSError:
        pass


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rng, lies, unnoticed = random.Random(1), 0, 0
    for _ in range(rounds):
        with Volume.made("ext4 writeback") as volume:
            vouched: list[Path] = []
            confirmed: list[Path] = []
            threads = []
            for number in range(4):
                directory = volume.path / f"d{number}"
                directory.mkdir()
                threads.append(threading.Thread(target=work, args=(directory, vouched, confirmed)))
            os.sync()
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0.003, 0.03))
            volume.break_down()
            for thread in threads:
                thread.join()
            volume.repair()
            lies += any(not path.exists() for path in vouched)
            unnoticed += any(not path.exists() for path in confirmed)
    print(f"{rounds} broken journals; an fsync had lied: {lies}; and one more change had gone through: {unnoticed}")


if __name__ == "__main__":
    main()
