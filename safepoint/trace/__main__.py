"""`python -I -m safepoint.trace solver.py`: for a Python that does not load the tracer by itself (`-S`, `-E`, `-I`).

Traced is what `safepoint trace` has started. Otherwise the program runs as it is.
"""

from __future__ import annotations

import os
import runpy
import sys

from safepoint.trace.launch import HOOK


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -I -m safepoint.trace PROGRAM.py [ARGUMENT ...]")
    sys.argv.pop(0)
    if str(HOOK) not in sys.path:  # else it is loaded
        runpy.run_path(str(HOOK / "sitecustomize.py"))
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
