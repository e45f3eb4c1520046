# A derived datatype takes part in communication although MPI_Type_commit was not called for it. As a part of other
# types it need not be committed.
#
# For example:
#     MPI_Type_contiguous(3, MPI_DOUBLE, &point);
#     MPI_Send(buf, 1, point, 1, 7, MPI_COMM_WORLD);
#
# It cannot see types in file views, and in Alltoallw.
Name=Datatype is used before it is committed
1block
N=1
2block
F1=p1:Type_contiguous || Type_vector || Type_create_hvector || Type_indexed || Type_create_hindexed ||
   Type_create_indexed_block || Type_create_hindexed_block || Type_create_struct || Type_create_resized ||
   Type_create_subarray || Type_create_darray || Type_hvector || Type_hindexed || Type_struct
F2=p1:Type_commit!
F3=p1:PTP || IPTP || PTP_init || Sendrecv || Sendrecv_replace || Isendrecv || Isendrecv_replace || Coll || ICOLL
   || Put || Get || Accumulate || Get_accumulate || Fetch_and_op || Compare_and_swap || Rput || Rget || Raccumulate
   || Rget_accumulate || Pack || Unpack
3block
F1(newtype)=F2(datatype)
F1(newtype)=F3(types)
