"""Sets in other places than the working directory: put there, found there, and brought back.

What one rank has of a set is a *part*. It proves itself, since its record is sealed and has all checksums. So a place
needs one rule only: a part is there whole, or it does not count; and a set counts if all of its parts do.
"""
