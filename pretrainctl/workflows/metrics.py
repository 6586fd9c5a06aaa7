"""Metrics of a run: throughput, step time, loss, and what restarts cost."""

from __future__ import annotations

from dataclasses import replace

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
    events = ledger.read_events(opened.path)
    back = [event for event in events if event.kind == "went_back"]
    # Steps beyond are to be done again on purpose: until the old ones are passed, none would count as new.
    ways_back = {event.after_attempt: int(event.data["back_to_step"]) for event in back}
    series = read_series((path / "metrics.jsonl" for _, _, path in opened.restart_dirs()), ways_back)
    alerts = tuple(
        f"attempt {event.attempt}: {event.message}" for event in events if event.kind in {"loss_jump", "lr_jump"}
    )
    return replace(summarize(series, fold(events).resumes), alerts=alerts)
