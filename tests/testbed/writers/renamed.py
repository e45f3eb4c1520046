"""A program that writes its state under another name and then gives it its own; its log is opened for each row."""

import os
import sys
import time

step = 0
if os.path.exists("state.txt"):
    with open("state.txt") as file:
        step = int(file.read().split()[0])
while step < int(sys.argv[1]):
    step += 1
    time.sleep(0.01)
    with open("log.txt", "a") as log:
        log.write(f"{step}\n")
    with open("state.new", "w") as file:
        for i in range(2000):
            file.write(f"{step + i}\n")
    os.replace("state.new", "state.txt")
