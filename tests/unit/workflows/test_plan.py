"""The plan of a recipe on a cluster, and what is refused before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import InputError
from pretrainctl.workflows.plan import make_plan

HOME = Path("/home/you")


def plan(*set_values, cluster="sandbox", **given):
    return make_plan("quickstart", cluster, set_values=set_values, directory=HOME, **given)


def refused(*set_values, **given):
    with pytest.raises(InputError) as caught:
        plan(*set_values, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_quickstart_on_the_sandbox():
    made = plan()
    geometry = made.geometry
    assert (geometry.world_size, geometry.data_parallel, geometry.accumulation) == (2, 2, 1)
    assert geometry.tokens_per_step == 8 * 256
    assert geometry.total_steps == 160
    assert geometry.tokens == made.recipe.training.tokens
    assert 900_000 < made.estimate.parameters < 1_100_000
    assert made.gpus_per_node == 0
    assert made.estimate.node_hours_per_job == pytest.approx(2 * 20 / 60)
    assert made.notes == ()
    assert "160 steps" in made.summary()


def test_tokens_are_rounded_up_to_whole_steps_and_it_is_said():
    made = plan("training.tokens=327_681")
    assert made.geometry.total_steps == 161
    assert "rounded up to 161 whole steps" in made.notes[0]


def test_a_batch_in_tokens_and_more_ranks():
    made = plan("training.global_batch=8192 tokens", "resources.tasks_per_node=2")
    assert made.geometry.global_batch == 32
    assert (made.geometry.world_size, made.geometry.accumulation) == (4, 2)


def test_relative_paths_start_where_the_command_is_given_and_absolute_ones_stay():
    assert plan().recipe.data.sources[0].prefix == HOME / "data/quickstart"
    made = plan("data.sources.0.prefix=/data/x", "checkpoint.directory=ckpt")
    assert made.recipe.data.sources[0].prefix == Path("/data/x")
    assert made.checkpoint_directory(HOME / "runs/a") == HOME / "ckpt"
    assert plan().checkpoint_directory(HOME / "runs/a") == HOME / "runs/a/checkpoints"


def test_name_and_mail_come_from_the_command():
    made = plan(name='7B main/run #1: "x"', mail_type="END,FAIL", mail_user="me@example.org")
    assert made.name == '7B main/run #1: "x"'
    assert made.directives["mail-type"] == "END,FAIL"
    assert made.directives["mail-user"] == "me@example.org"
    assert "mail-type" not in plan().directives


def test_the_queue_is_the_first_production_row_that_fits():
    rows = (
        "cluster.queues=[{name: small, partition: s, purpose: production, max_nodes: 2, max_walltime: 1h},"
        "{name: fast, partition: f, purpose: urgent, max_nodes: null, max_walltime: null},"
        "{name: big, partition: b, purpose: production, min_nodes: 3, max_nodes: unknown, max_walltime: 12h}]"
    )
    assert plan(rows).queue.name == "small"
    made = plan(rows, "resources.spares=1")
    assert made.queue.name == "big"
    assert made.directives["nodes"] == "3"
    assert "max_nodes of queue big on sandbox is unknown and was not checked" in made.notes
    assert plan(rows, "resources.queue=fast").queue.partition == "f"
    assert refused(rows, "resources.walltime=2h") == (
        "no queue of sandbox takes 2 nodes for 0-02:00:00: "
        "small: 0-02:00:00, at most 0-01:00:00 (pretrainctl's own sandbox, 2026-11); "
        "big: 2 nodes, at least 3 (pretrainctl's own sandbox, 2026-11)"
    )
    assert "small: 4 nodes, at most 2" in refused(rows, "resources.nodes=4", "resources.queue=small")
    assert "has no queue 'slow'" in refused(rows, "resources.queue=slow")


@pytest.mark.parametrize(
    ("set_values", "says"),
    [
        (["training.micro_batch=3"], "8 is not divisible by 6"),
        (["training.global_batch=1000 tokens"], "1000 tokens is no whole number of samples of 256"),
        (["training.schedule.warmup_steps=161"], "warmup_steps 161 exceeds the 160 steps"),
        (["resources.walltime=30s"], "is not longer than the signal lead time"),
        (["resources.walltime=2m"], "no time to train"),
        (["resources.gpus_per_node=5"], "gpus_per_node 5: a node of sandbox has 4"),
        (["cluster.tasks.cpus_per_task=81"], "1 tasks x 81 CPUs are more than the 80 CPUs"),
        (["cluster.account={required: true}"], "sandbox refuses jobs without an account"),
        (["cluster.nmae=x"], "unknown key 'nmae'"),
        (["cluster=x"], "unknown key 'cluster'"),
    ],
)
def test_refused_before_the_queue(set_values, says):
    assert says in refused(*set_values)


def test_without_a_cluster_it_is_where_we_are(monkeypatch):
    assert "no cluster profile knows this host" in refused(cluster=None)
    monkeypatch.setattr("socket.getfqdn", lambda: "login1.big.example")
    folder = Path(__import__("os").environ["PRETRAINCTL_CONFIG"]) / "cluster_profiles"
    folder.mkdir()
    (folder / "big.yaml").write_text("extends: sandbox\nname: big\nhosts: {login: ['.*\\.big\\.example']}\n")
    assert plan(cluster=None).profile.name == "big"
