"""Two runs of an OpenMP program: which region, iteration and line differs first.

A program whose source has the calls of `sp_trace` leaves a directory of events, one file for each thread. This room has
the calls (`c/`), what puts them into Fortran source, what reads the files, and what compares two of them.
"""
