"""A program that rewrites its data base in place, and closes it at the end only."""

import sys
import time

with open("held.db", "w+b") as db:
    for step in range(1, int(sys.argv[1]) + 1):
        time.sleep(0.01)
        db.seek(0)
        db.write(f"{step:08d}".encode() * 100)
        db.flush()
