"""The srun that is shown is the one that a restart starts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pretrainctl import process
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
