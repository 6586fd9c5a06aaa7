"""The main job on real parts: faults on a real Slurm, real DeepSpeed, and weights that are equal to the last bit.

`pytest tests/sandbox/test_runs.py --every-stage` does every fault with every ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pretrainctl.sandbox import Sandbox
from tests.sandbox.training_runs import Site, TrainingRun, meet_the_time_limit

STEPS = 60
EVERY = 10
FAULT_AT = EVERY + 3
LEAD = "cluster.signals.lead=55s"
HELD = "cluster.hang.step=5m"
"""Ranks that the test holds are no hang."""

Reference = Callable[[int], TrainingRun]


@pytest.fixture(scope="module")
def undisturbed(site: Site) -> Reference:
    """The undisturbed run of a ZeRO stage, made when first asked for."""
    made: dict[int, TrainingRun] = {}

    def get(stage: int) -> TrainingRun:
        if stage not in made:
            run = made[stage] = launch(site, f"undisturbed-{stage}", stage)
            run.wait_for_finish()
            assert [sample["step"] for sample in run.samples()] == list(range(1, STEPS + 1))
        return made[stage]

    return get


def launch(site: Site, name: str, stage: int, *sets: str) -> TrainingRun:
    values = [f"training.zero_stage={stage}", f"checkpoint.every_steps={EVERY}", *sets]
    return site.launch(name, steps=STEPS, sets=values)


def assert_exactly_once(run: TrainingRun, expected: TrainingRun, resumed: tuple[int, int]) -> None:
    """A resume right after a complete checkpoint, the same losses, bit-identical weights."""
    run.assert_goes_on(*resumed, every=EVERY)
    losses = {sample["step"]: sample["loss"] for sample in run.samples()}
    assert losses == {sample["step"]: sample["loss"] for sample in expected.samples()}
    assert run.weights_digest() == expected.weights_digest()


ANOTHER_STAGE = pytest.mark.every_stage("the same fault with another ZeRO stage")
STAGES = [pytest.param(1, marks=ANOTHER_STAGE), 2, pytest.param(3, marks=ANOTHER_STAGE)]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_killed_node_costs_only_the_steps_since_the_last_checkpoint(
    site: Site, sandbox: Sandbox, undisturbed: Reference, stage: int
) -> None:
    expected = undisturbed(stage)
    run = launch(site, f"node-killed-{stage}", stage, "resources.spares=1")
    run.wait_for_step(FAULT_AT)
    victim = run.events("restart_started")[0].data["nodes"][-1]
    sandbox.kill_node(victim)
    run.wait_for_finish()
    assert_exactly_once(run, expected, (1, 1))
    ended = run.events("restart_ended")[0].data
    assert (ended["class"], ended["nodes"]) == ("node_failure", [victim])
    assert victim not in run.events("restart_started")[1].data["nodes"]
    assert {event.attempt for event in run.events() if event.attempt} == {1}


@pytest.mark.parametrize("stage", STAGES)
def test_the_time_limit_is_handed_over_at_a_step_boundary(
    site: Site, sandbox: Sandbox, undisturbed: Reference, stage: int
) -> None:
    expected = undisturbed(stage)
    run = launch(site, f"time-limit-{stage}", stage, LEAD, HELD)
    run.wait_for_step(FAULT_AT)
    meet_the_time_limit(site, run)
    run.wait_for_finish()
    assert_exactly_once(run, expected, (2, 0))
    assert run.events("save_asked")[0].data["reason"] == "time_limit"
    assert run.events("attempt_ended")[0].data == {"action": "hand_over", "class": "time_limit"}
    assert run.samples()[0]["step"] == 1
    assert len(run.samples()) == STEPS, "a save at the boundary loses no step"


@pytest.mark.parametrize("stage", STAGES)
def test_a_preempted_run_saves_in_the_grace_time_and_goes_on(
    site: Site, sandbox: Sandbox, undisturbed: Reference, stage: int
) -> None:
    expected = undisturbed(stage)
    run = launch(site, f"preempted-{stage}", stage)
    run.wait_for_step(FAULT_AT)
    urgent = site.slurm(
        *("sbatch", "--parsable", "--partition=high", "--nodes=4", "--exclusive", "--wrap=srun sleep 2"),
        *("--output=/dev/null",),
    ).strip()
    run.wait_for_finish()
    assert_exactly_once(run, expected, (2, 0))
    assert run.events("attempt_ended")[0].data == {"action": "hand_over", "class": "preempted"}
    # It left within the grace time, so Slurm calls it COMPLETED.
    assert site.slurm("sacct", "-nXP", "-o", "state", "-j", urgent).split() == ["COMPLETED"]
    assert len(run.samples()) == STEPS, "a save at the boundary loses no step"


def test_without_a_spare_the_chained_job_goes_on_and_nothing_is_left_queued(
    site: Site, sandbox: Sandbox, undisturbed: Reference
) -> None:
    expected = undisturbed(2)
    run = launch(site, "handed-over", 2)
    run.wait_for_step(FAULT_AT)
    batch_host = run.events("claimed")[0].message.split()[-1]
    victim = next(node for node in run.events("restart_started")[0].data["nodes"] if node != batch_host)
    sandbox.kill_node(victim, silent=True)
    run.wait_for_finish()
    assert_exactly_once(run, expected, (2, 0))
    assert run.events("attempt_ended")[0].data == {"action": "hand_over", "class": "node_failure"}
    assert victim not in run.events("restart_started")[1].data["nodes"]
    run.wait_for_an_empty_queue()


def test_a_pre_queued_chain_goes_on_and_ends_by_itself(site: Site, sandbox: Sandbox, undisturbed: Reference) -> None:
    expected = undisturbed(2)
    run = launch(site, "prequeued", 2, LEAD, HELD, "chain.strategy=prequeued", "chain.jobs=3")
    assert len(run.events("submitted")) == 3
    run.wait_for_step(FAULT_AT)
    meet_the_time_limit(site, run)
    run.wait_for_finish()
    assert_exactly_once(run, expected, (2, 0))
    assert not run.events("chained")
    run.wait_for_an_empty_queue()
