from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pretrainctl.errors import InputError
from pretrainctl.records.codec import from_json
from pretrainctl.records.contract import ATTEMPT_VARIABLE, RUN_DIR_VARIABLE, restart_dir
from pretrainctl.records.sample import PhaseChange, Sample, Saved
from pretrainctl.telemetry import Reporter


def lines(run_dir: Path) -> list[dict[str, object]]:
    text = (restart_dir(run_dir, 3, 1) / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_each_report_is_one_line_of_its_record(run_dir):
    reporter = Reporter()
    reporter.phase("start", 0)
    reporter.step(1, 512, 5.25, 0.5, 1e-3, 0.125)
    reporter.saved("global_step1", 1, 0.25)
    reporter.close()
    reporter.step(2, 1024, 5.0, 0.5, 1e-3, 0.125)
    phase, sample, saved = lines(run_dir)
    assert (from_json(PhaseChange, phase).phase, phase["kind"]) == ("start", "phase")
    assert from_json(Sample, sample).loss == 5.25
    assert from_json(Saved, saved).tag == "global_step1"
    assert time.time() - from_json(Sample, sample).time < 60


def test_a_second_reporter_appends(run_dir):
    for step in (1, 2):
        Reporter().step(step, step, 1.0, 1.0, 1.0, 1.0)
    assert [line["step"] for line in lines(run_dir)] == [1, 2]


def test_other_ranks_write_nothing(run_dir, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    Reporter().step(1, 1, 1.0, 1.0, 1.0, 1.0)
    assert list(run_dir.iterdir()) == []


def test_outside_a_run_nothing_happens(run_dir, monkeypatch):
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    reporter = Reporter()
    reporter.phase("start", 0)
    reporter.step(1, 1, 1.0, 1.0, 1.0, 1.0)
    reporter.close()
    assert list(run_dir.iterdir()) == []


def test_a_run_without_its_attempt_is_an_error(run_dir, monkeypatch):
    monkeypatch.delenv(ATTEMPT_VARIABLE)
    with pytest.raises(InputError, match=ATTEMPT_VARIABLE):
        Reporter()


def test_a_step_costs_little(run_dir):
    reporter = Reporter()
    before = time.process_time()
    for step in range(2000):
        reporter.step(step, step * 512, 2.5, 0.5, 1e-3, 0.125)
    assert (time.process_time() - before) / 2000 < 0.0005


def test_a_full_disk_loses_a_line_and_not_the_training(run_dir):
    """A file size limit cuts a line as a full disk does; what comes after it starts on a line of its own."""
    program = """
import resource, signal, sys
from pretrainctl.telemetry import Reporter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
reporter = Reporter()
reporter.step(1, 1, 1.0, 1.0, 1.0, 1.0)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
reporter.step(2, 1, 1.0, 1.0, 1.0, 1.0)
reporter.step(3, 1, 1.0, 1.0, 1.0, 1.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
reporter.step(4, 1, 1.0, 1.0, 1.0, 1.0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.count("warning: a line of metrics.jsonl was lost") == 1
    text = (restart_dir(run_dir, 3, 1) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in (text[0], text[-1])] == [1, 4]
    assert len(text) == 3


def test_it_imports_with_nothing_installed():
    """-S keeps every installed package away."""
    top = Path(__file__).parents[3]
    program = f"import sys; sys.path.insert(0, {str(top)!r}); import pretrainctl.telemetry; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    foreign = {name.split(".")[0] for name in done.stdout.split()} - set(sys.stdlib_module_names) - {"__main__"}
    assert foreign == {"pretrainctl"}
