"""What each set and each watched value was: the log that a program writes, and all that is read from it.

A program imports `log`, `lines` and `digest` alone. The others are for reports and comparisons.
"""
