"""Give back one set of files: survey, settle, choose, stage, swap.

(1) W is not touched before every byte of the chosen set was read and its checksum held: else a damaged set would
    destroy what is there and leave nothing to fall back to.
(2) The set stays while W is written: files are copied out of it, never moved, so a restore that was killed is repeated.
(3) A set without a record is given back only if it is provably what the program handed over: every file with the
    inode, size and time that `taken.json` says, in the very page cache that held them (same host, boot and mount), or
    else by its checksums. After a power cut names, sizes and times prove nothing.
(4) Nothing in W is deleted: what a set does not have is moved to `discarded/`.
(5) What a set needs of an append file is in W, in the hands of the program. So a set that is given back keeps a copy of
    it: else a program that begins its table anew, and is killed before its next set, has none left.

No function here holds state; only `choose` knows of other ranks. Errors of the system leave as `RestoreError`.
"""
