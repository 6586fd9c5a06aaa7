"""How much work one fault can cost: shown, warned of, and about an hour in what is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.cli.main import app
from pretrainctl.workflows.plan import make_plan

MINE = ("cluster.account.name=ab12",)
LARGE = sorted(set(catalog.names("recipes")) - {"quickstart"})


def plan(*set_values, recipe="llama-8b", cluster="leonardo"):
    families = ("cluster.families=[ehpc]",) if cluster == "marenostrum5" else ()
    return make_plan(recipe, cluster, set_values=[*MINE, *families, *set_values], directory=Path("/home/you"))


def warned(*set_values):
    return [line for line in plan(*set_values).warnings if line.startswith("one fault may cost")]


def test_it_is_the_work_between_two_checkpoints():
    risk = plan("resources.seconds_per_step=6", "checkpoint.every_steps=500", "resources.spares=1").estimate.at_risk
    assert (risk.steps, risk.seconds) == (500, 3000)
    assert risk.node_hours == pytest.approx(33 * 3000 / 3600)
    assert plan("resources.gpus_per_node=0", "resources.seconds_per_step=null").estimate.at_risk is None


def test_it_is_no_more_than_a_job_takes_since_each_saves_at_its_end_nor_than_the_run_has():
    a_day = int((24 * 3600 - 600 - 120) / 6)
    assert plan("resources.seconds_per_step=6", "checkpoint.every_steps=100000").estimate.at_risk.steps == a_day
    few = ("training.tokens=41943040", "training.schedule.warmup_steps=1")
    assert plan("resources.seconds_per_step=6", *few).estimate.at_risk.steps == 10


def test_more_than_two_hours_are_warned_of_with_an_interval_that_helps():
    per_step = "resources.seconds_per_step=13.4"
    assert warned(per_step, "checkpoint.every_steps=537") == []
    (line,) = warned(per_step, "checkpoint.every_steps=1000")
    assert line.startswith("one fault may cost 1000 steps, 3h43m of 32 nodes or ~119 node-hours, more than 2h00m: ")
    assert "set checkpoint.every_steps=200 for about an hour" in line
    assert "a checkpoint every 1h06m (Young and Daly)" in line
    assert "6.5 faults in 1000 node-days" in line
    assert warned(per_step, "checkpoint.every_steps=200") == []
    (slow,) = warned("resources.seconds_per_step=7000", "checkpoint.every_steps=9")
    assert "checkpoint.every_steps=1 " in slow


def test_plan_shows_steps_time_and_node_hours(capsys):
    app(["plan", "llama-8b", "-c", "leonardo", "--set", MINE[0]], standalone_mode=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("at risk")]
    assert line.split(maxsplit=2)[2] == "at most 250 steps by one fault, about 55m29s or ~29.6 node-hours"


@pytest.mark.parametrize("recipe", LARGE)
@pytest.mark.parametrize("cluster", ["marenostrum5", "leonardo", "jupiter"])
def test_about_an_hour_is_at_risk_in_what_is_shipped(recipe, cluster):
    assert plan(recipe=recipe, cluster=cluster).estimate.at_risk.seconds <= 3600


def test_a_budget_that_does_not_reach_the_target_or_the_end_of_the_first_job_is_said():
    def said(budget):
        found = plan(f"recovery.node_hours={budget}", "resources.spares=1", "resources.walltime=10:00:00").warnings
        return [line for line in found if "recovery.node_hours" in line]

    target, job = said(100)
    assert target.startswith("recovery.node_hours 100 does not reach the target, which takes ~")
    assert job.startswith("one job may use 330.00 node-hours, more than recovery.node_hours 100, ")
    assert said(330) == [target.replace(" 100 ", " 330 ")]
    assert said(10**6) == []
