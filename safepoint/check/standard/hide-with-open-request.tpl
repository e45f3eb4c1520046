# A request is open while the process hides: its message may be under way, and is in no set. It is a warning, as the
# program may begin the same receive again after a restart.
#
# For example:
#     request = comm.Irecv(halo, 1, 7)
#     session.hide(step)
#     request.Wait()
#
# It cannot see messages that are under way without a request: the check in hide finds them.
Name=hide while a request is open
Kind=warning
1block
N=1
2block
F1=p1:IPTP || ICOLL || Isendrecv || Isendrecv_replace || Rput || Rget || Raccumulate || Rget_accumulate || Start
   || Startall
F2=p1:Complete_any!
F3=p1:hide
3block
F1(request)=F2(request)
