# A count of elements, or a length of blocks, is negative.
#
# For example:
#     MPI_Send(buf, n - 2, MPI_INT, 1, 7, MPI_COMM_WORLD); /* n is 1 */
#
# It cannot see counts that are too large for the buffer: its size is not known.
Name=Negative count
1block
N=1
2block
F1=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Coll || ICOLL
   || Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget || Raccumulate
   || Rget_accumulate || Type_contiguous || Type_vector || Type_create_hvector || Type_indexed ||
   Type_create_hindexed || Type_create_indexed_block || Type_create_hindexed_block || Type_create_struct ||
   Type_create_resized || Type_create_subarray || Type_create_darray || Type_hvector || Type_hindexed ||
   Type_struct
3block
F1(counts)<0
