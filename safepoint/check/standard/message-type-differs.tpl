# The i-th message from one process to another with a tag is sent as one predefined datatype, and received as another.
# MPI_PACKED goes with all. It is a warning, as a receive from any source that was asked for earlier may take another
# message than the i-th.
#
# For example:
#     if (rank == 0) MPI_Send(buf, 1, MPI_FLOAT, 1, 7, MPI_COMM_WORLD);
#     if (rank == 1) MPI_Recv(buf, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#
# It cannot see derived datatypes: those of two processes cannot be compared.
Name=Datatypes of send and receive differ
Kind=warning
1block
N=2
2block
F1=p1:message_sent
F2=p2:message_received
3block
F1(dest)=p2
F2(source)=p1
F1(tag)=F2(tag)
F1(comm)=F2(comm)
F1(datatype)!=F2(datatype)
F1(datatype)!=MPI_PACKED
F2(datatype)!=MPI_PACKED
F1(count)>0
F2(count)>0
