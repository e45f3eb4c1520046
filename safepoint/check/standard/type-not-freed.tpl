# Derived datatype that the program has made is still there at MPI_Finalize. In a loop this is a leak: MPI has only so
# many.
#
# For example:
#     MPI_Type_contiguous(3, MPI_DOUBLE, &point);
#     MPI_Type_commit(&point);
#     MPI_Finalize();
#
# It cannot see types that MPI_Type_get_contents returns. Types of MPI_Type_create_f90_real and its like must not be
# freed.
Name=Derived datatype is not freed
1block
N=1
2block
F1=p1:Type_contiguous || Type_vector || Type_create_hvector || Type_indexed || Type_create_hindexed ||
   Type_create_indexed_block || Type_create_hindexed_block || Type_create_struct || Type_create_resized ||
   Type_create_subarray || Type_create_darray || Type_hvector || Type_hindexed || Type_struct || Type_dup
F2=p1:Type_free!
F3=p1:Finalize
3block
F1(newtype)=F2(datatype)
