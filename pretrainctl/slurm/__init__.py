"""Speak Slurm: submit, cancel, query. Parsers are pure, states are one table, unreadable is unknown."""
