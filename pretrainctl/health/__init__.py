"""Which nodes are fit: a quick test on each of them, and the list of those that a cluster's jobs keep off."""
