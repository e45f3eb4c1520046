"""A program that writes a summary a third of a millisecond after what looks like the end of its set."""

import os
import sys
import time

step = 0
if os.path.exists("summary.txt"):
    with open("summary.txt") as file:
        step = int(file.read())
    with open("state.txt") as file:
        assert [int(line) for line in file] == list(range(step, step + 2000)), "torn or mixed"
while step < int(sys.argv[1]):
    step += 1
    time.sleep(0.01)
    with open("state.txt", "w") as file:
        for i in range(2000):
            file.write(f"{step + i}\n")
    with open("done.txt", "w") as file:
        file.write(f"{step}\n")
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.0003:
        pass
    with open("summary.txt", "w") as file:
        file.write(f"{step}\n")
