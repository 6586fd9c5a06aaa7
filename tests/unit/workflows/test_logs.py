"""A log that is not there: what there is instead; and what is said between the lines of one that is followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.cli.run import logs as logs_command
from pretrainctl.errors import RunError
from pretrainctl.records import codec
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import ledger
from pretrainctl.workflows import logs
from pretrainctl.workflows.logs import log_file


def test_a_log_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    with pytest.raises(RunError, match="no training log yet"):
        log_file(str(tmp_path))
    for place in ("0001/restart-0", "0001/restart-1", "0003/restart-0"):
        folder = tmp_path / "attempts" / place
        folder.mkdir(parents=True)
        (folder / "training.log").touch()
    assert log_file(str(tmp_path), 1).parent.name == "restart-1"
    with pytest.raises(RunError, match="no such training log") as caught:
        log_file(str(tmp_path), 7)
    assert caught.value.hint == "there is: attempt 1 restart 0, attempt 1 restart 1, attempt 3 restart 0"


def test_what_the_attempts_say_between_the_lines_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    reached = "the target was reached at step 160"

    def lines(*_: object, **__: object):
        yield "step 160"
        for kind, message in (("restart_ended", reached), ("decided", f"finish: {reached}"), ("finished", reached)):
            data = {"class": "finished", "restart": 0}
            ledger.append(tmp_path, kind, message, attempt=1, data=data)  # type: ignore[arg-type]
        assert is_over()
        yield None

    def follow(_newest: object, over: object, **_: object):
        nonlocal is_over
        is_over = over
        return lines()

    is_over = None
    monkeypatch.setattr(logs, "follow", follow)
    said = [line.text for line in logs.follow_log(str(tmp_path)) if not line.of_program]
    assert said == [f"attempt 1: {reached}", "attempt 1: finish"]


def test_a_log_that_is_empty_so_far_is_said_so_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codec.write(tmp_path / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    log = tmp_path / "attempts" / "0002" / "restart-1" / "training.log"
    log.parent.mkdir(parents=True)
    log.touch()
    ledger.append(tmp_path, "claimed", "claimed", attempt=2, data={"job_id": 1})
    logs_command(str(tmp_path), lines=40)
    out, err = capsys.readouterr()
    assert (out, "log of attempt 2 restart 1 is empty so far: `pretrainctl status a`" in err) == ("", True)
    logs_command(str(tmp_path), lines=40, as_json=True)
    assert capsys.readouterr().err == "", "its JSON says so itself"
    ledger.append(tmp_path, "attempt_ended", "x", attempt=2, data={"action": "stop", "class": "unknown"})
    logs_command(str(tmp_path), lines=40)
    assert "is empty: " in capsys.readouterr().err
    log.write_text("step 1\n")
    logs_command(str(tmp_path), lines=40)
    assert capsys.readouterr() == ("step 1\n", "")
