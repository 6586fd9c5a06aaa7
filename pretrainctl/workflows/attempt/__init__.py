"""The attempt: one start of the batch script, on the batch host. `run.run_attempt` is the whole of it in order."""
