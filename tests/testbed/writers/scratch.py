"""A program that refuses to start while its lock file is there, in the directory that it writes to."""

import os
import sys
import time

os.makedirs("out", exist_ok=True)
if os.path.exists("out/run.lock"):
    sys.exit("out/run.lock is there: another instance is at work")
step = 0
if os.path.exists("done.txt"):
    with open("done.txt") as file:
        step = int(file.read())
with open("out/run.lock", "w") as lock:
    while step < int(sys.argv[1]):
        step += 1
        time.sleep(0.01)
        lock.write(f"{step}\n")
        lock.flush()
        for part in range(5):
            with open(f"out/{part}.txt", "w") as file:
                for i in range(400):
                    file.write(f"{step + i}\n")
        with open("done.txt", "w") as file:
            file.write(f"{step}\n")
os.remove("out/run.lock")
