"""What a run trains with, held against what it trained with before, and consent."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrainctl.records import codec, contract
from pretrainctl.records.lineage import Change
from pretrainctl.records.run import Action, Decision
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.workflows import lineage as lineages
from pretrainctl.workflows.attempt.lineage import LineageCheck
from pretrainctl.workflows.lineage import compare_to_trained, lineage_file, trained_before
from tests.unit.workflows.test_revise import launched


class Begun:
    """An attempt that has claimed its number, and writes into the real ledger."""

    def __init__(self, run: RunFolder, number: int) -> None:
        self.run, self.number, self.launch = run, number, run.launch()
        self.record = SimpleNamespace(host="node01")

    def event(self, kind: Any, message: str, data: dict[str, Any] | None = None) -> None:
        ledger.append(self.run.path, kind, message, attempt=self.number, data=data or {})


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "data").mkdir()
    for suffix in (".bin", ".idx"):
        (tmp_path / "data" / f"quickstart{suffix}").write_bytes(b"data")
    return launched(tmp_path, "quickstart", "sandbox", f"cluster.python.training={sys.executable}")


@pytest.fixture
def attempt(run: RunFolder) -> Callable[..., Decision | None]:
    def begin(number: int, *, trains: bool = True) -> Decision | None:
        contract.attempt_dir(run.path, number).mkdir()
        found = LineageCheck(Begun(run, number)).settle()  # type: ignore[arg-type]
        if found is None and trains:
            contract.restart_dir(run.path, number, 0).mkdir()
        return found

    return begin


def set_rate(run: RunFolder, rate: float) -> None:
    path = run.bundle / "training.json"
    settings = json.loads(path.read_text())
    settings["optimizer"]["lr"] = rate
    path.write_text(json.dumps(settings))


def accept(run: RunFolder, *changes: Change) -> None:
    ledger.append(run.path, "change_accepted", "accepted", data={"changes": list(changes)})


def test_the_first_attempt_records_and_the_next_finds_the_same(run: RunFolder, attempt: Callable[..., Any]) -> None:
    assert attempt(1) is None
    trained = trained_before(run)
    assert trained is not None
    assert trained.lineage.unknown == {}
    assert {key.split(".")[0] for key in trained.lineage.facts} == {
        *("training", "deepspeed", "launch", "job", "task", "python", "code", "data"),
    }
    begin = time.monotonic()
    assert attempt(2) is None
    assert time.monotonic() - begin < 5.0
    assert ledger.read_events(run.path, 2) == []
    assert compare_to_trained(run, run.launch()) == ((), ())


def test_a_changed_setting_stops_until_it_is_accepted(run: RunFolder, attempt: Callable[..., Any]) -> None:
    attempt(1)
    set_rate(run, 0.5)
    found = attempt(2)
    assert found.action is Action.STOP
    assert "not what attempt 1 trained with: training.optimizer.lr 0.002 -> 0.5" in found.reason
    assert attempt(3).action is Action.STOP, "one that stopped has trained nothing: it changes nothing"
    changes, waiting = compare_to_trained(run, run.launch())
    assert [change.key for change in changes] == [change.key for change in waiting] == ["training.optimizer.lr"]
    accept(run, *waiting)
    assert compare_to_trained(run, run.launch()) == (changes, ())
    set_rate(run, 0.6)
    assert attempt(4).action is Action.STOP, "consent is for one value"
    set_rate(run, 0.5)
    assert attempt(5) is None
    assert ledger.read_events(run.path, 5)[0].message.startswith("harmless or accepted changes since attempt 1")
    assert attempt(6) is None
    assert ledger.read_events(run.path, 6) == [], "it trained with it: nothing is changed any more"
    set_rate(run, 0.002)
    assert attempt(7).action is Action.STOP, "back to the first value is a change, too"


def test_rewritten_data_stop_and_touched_data_do_not(run: RunFolder, attempt: Callable[..., Any]) -> None:
    attempt(1)
    data = Path(run.record.recipe["data"]["sources"][0]["prefix"] + ".bin")
    data.touch()
    assert attempt(2) is None
    assert [one["key"] for one in ledger.read_events(run.path, 2)[0].data["changes"]] == [f"data.{data}.mtime"]
    data.write_bytes(b"atad")
    assert f"data.{data}.digest" in attempt(3).reason


def test_data_that_this_host_does_not_see_are_noted_and_no_change(run: RunFolder, attempt: Callable[..., Any]) -> None:
    attempt(1)
    data = Path(run.record.recipe["data"]["sources"][0]["prefix"] + ".bin")
    kept = data.rename(data.with_suffix(".away"))
    assert attempt(2) is None
    (note,) = ledger.read_events(run.path, 2)
    assert (note.kind, note.message) == ("note", f"{data} is not there on node01: no change of the data can be seen")
    assert compare_to_trained(run, run.launch()) == ((), ())
    kept.rename(data)
    assert attempt(3) is None
    assert ledger.read_events(run.path, 3) == [], "they are the same again"
    data.unlink()
    assert attempt(4) is None
    data.write_bytes(b"atad")
    assert f"not what attempt 4 trained with: data.{data}.digest" in attempt(5).reason, "held against attempt 3's"


def test_harmless_changes_pass_and_are_noted(run: RunFolder, attempt: Callable[..., Any]) -> None:
    attempt(1)
    script = run.script.read_text()
    assert "--time=0-00:20:00" in script
    run.script.write_text(script.replace("--time=0-00:20:00", "--time=0-00:10:00"))
    assert attempt(2) is None
    (event,) = ledger.read_events(run.path, 2)
    assert "job.time 0-00:20:00 -> 0-00:10:00" in event.message


def test_what_only_a_job_can_find_is_taken_from_the_attempt_that_stopped(
    run: RunFolder, attempt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(1)
    facts = {"python.version": "3.12.1", "python.torch": "99.0.0"}
    monkeypatch.setattr(lineages, "python_facts", lambda *_: (facts, {}))
    assert "python.torch" in attempt(2).reason
    _, waiting = compare_to_trained(run, run.launch())
    assert ("python.torch", "99.0.0") in [(change.key, change.after) for change in waiting]
    accept(run, *waiting)
    assert compare_to_trained(run, run.launch())[1] == ()
    assert attempt(3) is None


def test_a_record_that_cannot_be_read_is_no_change(run: RunFolder, attempt: Callable[..., Any]) -> None:
    attempt(1)
    attempt(2)
    lineage_file(run.path, 2).write_text("{")
    assert attempt(3) is None
    lineage_file(run.path, 1).unlink()
    lineage_file(run.path, 3).unlink()
    assert trained_before(run) is None
    set_rate(run, 0.5)
    assert attempt(4) is None
    assert codec.read(lineages.Lineage, lineage_file(run.path, 4)).facts["training.optimizer.lr"] == "0.5"
