"""What a program has in memory, as files: its variables in one archive, or one file for those who need no more."""
