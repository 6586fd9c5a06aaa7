"""Verbs: one a file; the only place where rooms meet."""
