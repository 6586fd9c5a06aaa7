"""Evidence to diagnosis to decision. Pure: nothing is read or done here, and the clock is an argument."""
