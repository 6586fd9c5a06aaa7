"""Metrics of a run: throughput, step time, loss, and what restarts cost."""

from __future__ import annotations

from pretrainctl.metrics.series import read_series
from pretrainctl.metrics.summary import summarize
from pretrainctl.records.sample import Summary
from pretrainctl.runs import folder, ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold

__all__ = ["summarize_run"]


def summarize_run(run: str | RunFolder) -> Summary:
    """The summary over all restarts of all attempts; a run that has not stepped yet has an empty one."""
    opened = folder.find(run) if isinstance(run, str) else run
    series = read_series(path / "metrics.jsonl" for _, _, path in opened.restart_dirs())
    return summarize(series, fold(ledger.read_events(opened.path)).resumes)
