"""The srun that is shown is the one that a restart starts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pretrainctl import process
from pretrainctl.records.contract import Failure
from pretrainctl.workflows.attempt.restart import Restart
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.training_step import shown_step


def test_a_restart_starts_what_render_shows(tmp_path, monkeypatch):
    plan = make_plan("quickstart", "sandbox", directory=tmp_path)
    launch, _, _ = render_bundle(plan, tmp_path)
    attempt = SimpleNamespace(
        launch=launch,
        number=1,
        record=SimpleNamespace(nodes=["node1", "node2"], job_id=7),
        run=SimpleNamespace(path=tmp_path),
    )
    started = []

    def start(argv, **_):
        started.append(tuple(argv))
        raise InterruptedError

    monkeypatch.setattr(process, "start", start)
    restart = Restart(attempt, SimpleNamespace(), SimpleNamespace(), 0, ["node2", "node1"], None)
    restart.folder.mkdir(parents=True)
    with pytest.raises(InterruptedError):
        restart.run()
    assert started == [shown_step(launch, tmp_path)]


@pytest.mark.parametrize(
    ("seconds", "settled", "undecided", "status", "told"),
    [
        (1.0, False, False, 1, False),
        (1.0, True, False, 1, True),
        (1.0, False, False, 137, True),
        (5.0, False, False, 1, True),
        (5.0, False, True, 1, False),
    ],
)
def test_a_failure_is_laid_on_nobody_before_it_is_known_which_nodes_are_dead(
    tmp_path, monkeypatch, seconds, settled, undecided, status, told
):
    attempt = SimpleNamespace(
        launch=SimpleNamespace(liveness=SimpleNamespace(silent_after=4.0)),
        number=1,
        record=SimpleNamespace(nodes=["node1"], job_id=7),
        run=SimpleNamespace(path=tmp_path),
    )
    listener = SimpleNamespace(settled_since=lambda _moment, _nodes: settled, undecided=lambda: undecided)
    restart = Restart(attempt, SimpleNamespace(listener=listener), SimpleNamespace(), 0, ["node1"], None)
    monkeypatch.setattr("time.monotonic", lambda: 100.0 + seconds)
    assert restart._is_settled(Failure(0, "node1", status, 0.0), 100.0) is told
