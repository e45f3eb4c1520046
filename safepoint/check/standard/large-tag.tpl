# A message is sent with a tag above the largest one that this MPI library has: the attribute MPI_TAG_UB of
# MPI_COMM_WORLD.
#
# For example:
#     MPI_Send(buf, 1, MPI_INT, 1, INT_MAX, MPI_COMM_WORLD); /* MPI_TAG_UB may be 32767 */
#
# It cannot see that another MPI library has a smaller limit.
Name=Tag above MPI_TAG_UB
1block
N=1
2block
F1=p1:Send_any || Isend_any || Send_init || Bsend_init || Ssend_init || Rsend_init || Sendrecv ||
   Sendrecv_replace || Isendrecv || Isendrecv_replace
3block
F1(sendtag)>F1(tag_ub)
