"""What a recipe says about failures and budgets is what is done."""

from __future__ import annotations

import os
import signal

import pytest

from tests.sandbox.training_runs import Site, rank_process

pytestmark = pytest.mark.usefixtures("sandbox")


def test_a_policy_of_the_recipe(site: Site) -> None:
    run = site.launch("policy", steps=3000, sets=["checkpoint.every_steps=10", "recovery.policies.unknown=stop"])
    run.wait_for_step(15)
    os.kill(rank_process(run, 1), signal.SIGKILL)  # by whom is not known: usually that is tried again
    run.wait_for("attempt_ended")
    (stopped,) = run.events("stopped")
    assert stopped.data["class"] == "unknown"
    assert "recovery.policies" in stopped.message
    assert len(run.events("restart_started")) == 1
    run.wait_for_an_empty_queue()


def test_a_budget_of_node_hours(site: Site) -> None:
    sets = ["checkpoint.every_steps=10", "recovery.node_hours=0.0001"]
    run = site.launch("budget", steps=3000, sets=sets)
    run.wait_for_step(15)
    os.kill(rank_process(run, 1), signal.SIGKILL)
    run.wait_for("attempt_ended")
    (stopped,) = run.events("stopped")
    assert "the recipe allows 0.0001 (recovery.node_hours)" in stopped.message
    run.wait_for_an_empty_queue()
    refused = site.command("resume", run.name)
    assert (refused.returncode, "recovery.node_hours" in refused.stderr) == (6, True)
    last = run.step()
    assert site.command("resume", run.name, "--set", "recovery.node_hours=null").returncode == 0
    run.wait_for_step(last + 3)
    assert site.command("cancel", run.name).returncode == 0
