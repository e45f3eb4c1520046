"""Keep one set of files: find, take, store, commit, prune.

A set is *committed* when its record exists under its final name. `docs/protocol.md` has the gap after every step.

(1) Everything that a record vouches for is durable before the record has its name: else a power cut could leave a
    record without its files, and a crash would look like damage. `store` does that, `commit` the rest.
(2) A set is pruned only after a newer one is durable, on every rank: else ranks killed at different moments may have
    no step in common, or a power cut leaves neither.
(3) A failed fsync ends its set: the kernel may have dropped the pages and marked them clean, so a second fsync would
    succeed over nothing. The set is renamed to a name that nobody restores.
(4) What `take` moved stays whole and findable at every moment: `taken.json` is there before the first file moves, and
    the directories of a first set, which has no set behind it, are durable before.

No function here knows of other ranks, or holds state. Errors of the system leave as `SaveError`.
"""
