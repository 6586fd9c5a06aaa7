"""The run folder: layout, claim, ledger, code snapshot, log tails. Whoever has the folder has the run."""
