"""A rank as if on a node of its own: `python apart.py TOP command …`. Each odd rank of the world is on another node
than the launcher, where what is temporary is in TOP. To the tracer all is as it is there. Only the numbers of
processes mean something here too.
"""

from __future__ import annotations

import os
import sys

NODES = "SAFEPOINT_TRACE_NODES"  # not from the package: this starts in every rank


def main(top: str, command: list[str]) -> None:
    rank = next(int(os.environ[name]) for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
    if rank % 2:
        _, *rest = os.environ[NODES].split("\n")
        os.environ[NODES] = "\n".join(("a launcher on another host", *rest))
        os.environ["TMPDIR"] = top
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
