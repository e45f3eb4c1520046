"""Commands that change what is kept: each holds the locks of all ranks, by `holding`, or refuses."""
