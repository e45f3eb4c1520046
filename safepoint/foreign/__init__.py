"""The helper of a program in C or Fortran: it has the session, and the program asks it by a socket (`c/safepoint.c`).

(1) It ends when the program has: at the end of file, whatever it was about to do. A set in flight is then as after a
    kill of the program, since that is what it was.
(2) It answers each question once. In between it may ask the program for what only that can do: an operation of MPI.
(3) It holds nothing of the program's: no descriptor, no signal, no place in its process group's wait.
"""
