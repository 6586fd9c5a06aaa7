"""Who is alive: a tiny process on each node beats over TCP to the attempt on the batch host."""
