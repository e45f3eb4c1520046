"""Which MPI calls did each rank make, when, and from which line?"""
