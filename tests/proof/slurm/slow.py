"""`examples/batch.py`, in the first start of a job slowed down so that it lasts until it is stopped."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import batch

quick = batch.advance


def advance(u: batch.np.ndarray) -> None:
    quick(u)
    time.sleep(0.1)


if not os.environ.get("SLURM_RESTART_COUNT"):
    batch.advance = advance
batch.main()
