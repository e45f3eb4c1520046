"""The pictures of `safepoint tasks view`: the graph by layers, the workers over time, the network, the totals."""
