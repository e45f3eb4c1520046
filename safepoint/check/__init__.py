"""Templates of erroneous MPI behaviour: which calls, made or not made, with which arguments."""
