// Every header of RMM's includes a file of this name. None of ours does.
#error "a header of RMM's was included where alluvion/compat_25 stands in its place: that one is not among ours"
