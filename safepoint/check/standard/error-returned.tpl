# A call has returned an error, or MPI has ended the program in it. It is a warning, as a program may handle its
# errors.
#
# For example:
#     MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#     MPI_Send(buf, 1, MPI_INT, 99, 7, MPI_COMM_WORLD);
#
# It cannot see errors of files, which programs expect, and what an MPI library does not check.
Name=MPI has returned an error
Kind=warning
1block
N=1
2block
F1=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Probe ||
   Iprobe || Mprobe || Improbe || Start || Startall || Complete_any || Cancel || Coll || ICOLL || Comm_new ||
   Comm_free || Group_new || Group_free || Type_contiguous || Type_vector || Type_create_hvector || Type_indexed ||
   Type_create_hindexed || Type_create_indexed_block || Type_create_hindexed_block || Type_create_struct ||
   Type_create_resized || Type_create_subarray || Type_create_darray || Type_hvector || Type_hindexed ||
   Type_struct || Type_dup || Type_commit || Type_free || Op_create || Op_free || Win_create || Win_allocate ||
   Win_allocate_shared || Win_create_dynamic || Win_free || Win_fence || Win_lock || Win_unlock || Win_lock_all ||
   Win_unlock_all || Win_start || Win_complete || Win_post || Win_wait || Put || Get || Accumulate ||
   Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget || Raccumulate || Rget_accumulate
3block
F1(result)!=0
