# Only MPI_Initialized, MPI_Finalized and the questions for versions are allowed then.
#
# For example:
#     MPI_Finalize();
#     MPI_Barrier(MPI_COMM_WORLD);
#
# It cannot see calls for attributes, info objects and error handlers.
Name=MPI is called after MPI_Finalize
1block
N=1
2block
F1=p1:Finalize
F2=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Probe ||
   Iprobe || Start || Startall || Complete_any || Coll || ICOLL || Comm_new || Comm_free || Comm_rank || Comm_size
   || Group_new || Group_free || Type_new || Type_commit || Type_free || Op_create || Op_free || Win_create ||
   Win_allocate || Win_allocate_shared || Win_create_dynamic || Win_free || Put || Get || Accumulate ||
   Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget || Raccumulate || Rget_accumulate || Finalize
