"""Programs that know nothing of save points: `safepoint run` watches one, and takes its sets while it stands still.

`supervisor` leads from life to life, `life` through one of them. `closes` tells when a set is complete, `processes` who
could still be writing it. Linux tells all this by /proc, inotify and netlink; in segments it works everywhere.
"""
