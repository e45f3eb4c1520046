"""The library for C and Fortran: its sources, and what compiles them. A program that it serves has `foreign` beside."""
