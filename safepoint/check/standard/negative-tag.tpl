# A message is sent with a negative tag. MPI_ANY_TAG is one too: it is for receives alone.
#
# For example:
#     MPI_Send(buf, 1, MPI_INT, 1, -1, MPI_COMM_WORLD);
#
# It cannot see tags that are too large: large-tag tells of them.
Name=Negative tag of a message
1block
N=1
2block
F1=p1:Send_any || Isend_any || Send_init || Bsend_init || Ssend_init || Rsend_init || Sendrecv ||
   Sendrecv_replace || Isendrecv || Isendrecv_replace
3block
F1(sendtag)<0
