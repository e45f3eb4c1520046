"""A program that makes a new directory each time, keeps three, and at a restart believes the newest by its name."""

import glob
import os
import shutil
import sys
import time

step = 0
for newest in sorted(glob.glob("step-*"))[-1:]:
    with open(f"{newest}/a") as a, open(f"{newest}/b") as b:
        numbers = [int(line) for line in a]
        step = numbers[0]
        assert numbers == [int(line) for line in b] == list(range(step, step + 1000)), "torn"
while step < int(sys.argv[1]):
    step += 1
    time.sleep(0.01)
    directory = f"step-{step:05d}"
    os.mkdir(directory)
    for name in ("a", "b"):
        with open(f"{directory}/{name}", "w") as file:
            for i in range(1000):
                file.write(f"{step + i}\n")
    with open(f"{directory}/done", "w") as file:
        file.write(f"{step}\n")
    for old in sorted(glob.glob("step-*"))[:-3]:
        shutil.rmtree(old)
