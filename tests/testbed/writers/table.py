"""A program that holds its table open, and at a restart renames it away and copies the rows back that it trusts."""

import os
import sys
import time

step = 0
if os.path.exists("state.txt"):
    with open("state.txt") as file:
        step = int(file.read().split()[0])
    os.rename("table.csv", "table.old")
    with open("table.old") as old, open("table.csv", "w") as new:
        for row in old:
            if int(row.split(",")[0]) <= step:
                new.write(row)
                new.flush()
with open("table.csv", "a", buffering=1) as table:
    while step < int(sys.argv[1]):
        step += 1
        time.sleep(0.01)
        table.write(f"{step},{step * step}\n")
        with open("state.txt", "w") as file:
            for i in range(2000):
                file.write(f"{step + i}\n")
