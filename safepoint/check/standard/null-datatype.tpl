# A call is given MPI_DATATYPE_NULL where it needs a datatype. Where MPI does not look at the type, as beside
# MPI_IN_PLACE, it may be anything.
#
# For example:
#     MPI_Datatype type = MPI_DATATYPE_NULL;
#     MPI_Send(buf, 1, type, 1, 7, MPI_COMM_WORLD);
#
# It cannot see other handles that are no datatypes: MPI itself finds some of them, and error-returned tells it.
Name=MPI_DATATYPE_NULL as a datatype
1block
N=1
2block
F1=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Coll || ICOLL
   || Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget || Raccumulate
   || Rget_accumulate || Type_contiguous || Type_vector || Type_create_hvector || Type_indexed ||
   Type_create_hindexed || Type_create_indexed_block || Type_create_hindexed_block || Type_create_struct ||
   Type_create_resized || Type_create_subarray || Type_create_darray || Type_hvector || Type_hindexed ||
   Type_struct || Type_dup || Type_commit || Type_free
3block
F1(types)=MPI_DATATYPE_NULL
