"""Samples of a run to series and summaries."""
