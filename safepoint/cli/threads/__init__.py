"""Commands for programs with OpenMP: make two of one, run both, and say where they differ first."""
