# A process calls hide less often than another one. hide is collective if the session has a communicator. It is a
# warning, as a note of hide does not say which one: a session may be of some processes only.
#
# For example:
#     if rank == 0:
#         session.hide(step)
#
# It cannot see sessions of one process, which hides for itself.
Name=hide is not called by all
Kind=warning
1block
N=2
2block
F1=p1:hide
F2=p2:hide!
3block
F1(match)=F2(match)
