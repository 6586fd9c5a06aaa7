"""The plan of a recipe on a cluster, and what is refused before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import InputError
from pretrainctl.schema import Plan
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
    made = plan(name='7B main run #1: "x"', mail_type="END,FAIL", mail_user="me@example.org")
    assert made.name == '7B main run #1: "x"'
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
        "small: 0-02:00:00, at most 0-01:00:00 (--set cluster.queues); "
        "big: 2 nodes, at least 3 (--set cluster.queues)"
    )
    with pytest.raises(InputError) as caught:
        plan(rows, "resources.walltime=2h")
    assert caught.value.hint == "resources.queue=fast (urgent) takes it"
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
    monkeypatch.delenv("SLURM_CONF", raising=False)
    assert "no cluster profile knows this host" in refused(cluster=None)
    monkeypatch.setattr("socket.getfqdn", lambda: "login1.big.example")
    folder = Path(__import__("os").environ["PRETRAINCTL_CONFIG"]) / "cluster_profiles"
    folder.mkdir()
    (folder / "big.yaml").write_text("extends: sandbox\nname: big\nhosts: {login: ['.*\\.big\\.example']}\n")
    assert plan(cluster=None).profile.name == "big"


LARGE = ("cluster.account.name=ab12",)


def large(*set_values, recipe="llama-8b", cluster="jupiter"):
    return make_plan(recipe, cluster, set_values=[*LARGE, *set_values], directory=HOME)


def test_memory_of_a_gpu_is_worked_out_and_what_may_not_fit_is_said():
    memory = large().estimate.memory
    assert memory.states == 2 * 8_030_261_248 + 18 * 8_030_261_248 // 128
    assert memory.gpu == 96 * 10**9
    assert large().warnings == ()
    (note,) = large("training.recompute=false").warnings
    assert "may not fit" in note
    assert "34 L s b h + 10 s b V, Korthikanti 2022" in note
    assert note.endswith(
        "set training.recompute=true, or a smaller training.micro_batch, or a higher training.zero_stage, or more nodes"
    )
    assert "JSC's configuration page" in note
    assert plan().estimate.memory is None
    (note,) = [note for note in large("cluster.node.gpu_memory=unknown").notes if "memory of a GPU" in note]
    assert "unknown and was not checked" in note


def test_weights_that_do_not_fit_a_host_are_said_below_stage_3():
    (note,) = large("cluster.node.memory=100GB").warnings
    assert "8.03B weights in fp32 on each of 4 ranks" in note
    assert "119.7GiB" in note
    for fits in (("training.zero_stage=3", "cluster.node.memory=100GB"), ()):
        assert large(*fits).warnings == ()


def test_jobs_follow_from_the_throughput_and_cost_is_in_the_sites_unit():
    made = large("cluster.node.gpu_flops=100T", "training.recompute=false")
    assert made.estimate.seconds_per_step == pytest.approx(made.estimate.flops_per_token * 4_194_304 / (128 * 100e12))
    per_job = int((12 * 3600 - 600 - 120) / made.estimate.seconds_per_step)
    assert made.estimate.jobs == -(-made.geometry.total_steps // per_job)
    last = made.geometry.total_steps - (made.estimate.jobs - 1) * per_job
    held = (made.estimate.jobs - 1) * 12 * 3600 + 120 + last * made.estimate.seconds_per_step
    assert made.node_hours == pytest.approx(32 * held / 3600)
    assert made.estimate.site_units_per_job == 32 * 12 * 288
    assert large("resources.seconds_per_step=2").estimate.seconds_per_step == 2
    assert large("cluster.accounting.per_node_hour=unknown").estimate.site_units_per_job is None
    assert plan().estimate.site_units_per_job is None


def test_what_the_estimate_rests_on_is_said_with_source_and_date():
    measured, assumed = large("training.recompute=false"), large("cluster.node.gpu_flops=unknown")
    assert str(measured.estimate.speed) == (
        "390T model FLOPs a second and GPU, measured on a dense model of 9B on 4 GPUs with Megatron in bf16 "
        "(OpenEuroLLM/oellm-autoexp 46a627d, config/experiments/megatron_jupiter_speed/README.md, 2026-08)"
    )
    assert assumed.estimate.speed.basis == "assumed"
    assert assumed.estimate.speed.as_of
    for made in (measured, assumed, large("cluster.node.gpu_flops=100T")):
        (note,) = [note for note in made.notes if "jobs and node-hours to the target rest on" in note]
        assert str(made.estimate.speed) in note
        assert note.endswith("measure a step of this model, and set resources.seconds_per_step")
    assert large("cluster.node.gpu_flops=100T").estimate.speed.basis == "given"
    own = large("resources.seconds_per_step=2")
    assert (own.estimate.speed.basis, own.estimate.speed.gpu_flops) == ("given", None)
    assert not any("rest on" in note for note in own.notes)
    assert plan("resources.seconds_per_step=null").estimate.speed is None


@pytest.mark.parametrize("name", ["../../x", "a/b", ".hidden", "-x"])
def test_a_name_that_no_run_can_have_is_refused_at_plan(name):
    assert "cannot be the name of a run" in refused(name=name)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (["resources.nodes=33"], "use a global batch of 264 or 528 samples, or 8 or 16 or 32 nodes, or another micro_"),
        (["resources.nodes=3"], "or 1 or 2 or 4 nodes, or another micro_batch"),
        (["training.micro_batch=3"], "or another micro_batch: with 3 no number of nodes divides 512"),
    ],
)
def test_a_batch_that_does_not_divide_brings_the_nodes_that_do(settings, hint):
    with pytest.raises(InputError) as caught:
        large(*settings)
    assert hint in caught.value.hint
    for nodes in (
        int(word) for word in caught.value.hint.split(" nodes")[0].split(", or ")[-1].split(" or ") if word.isdigit()
    ):
        assert large(f"resources.nodes={nodes}").geometry.nodes == nodes


def test_time_of_a_checkpoint_beside_the_lead_time():
    made = large("cluster.signals.write_rate=2GB")
    parameters = made.estimate.parameters
    assert made.estimate.checkpoint_seconds == pytest.approx((2 * parameters + 12 * parameters / 32) / 2e9)
    assert not any("assumed 1 GB" in note for note in made.notes)
    assert (made.estimate.checkpoint_basis, large().estimate.checkpoint_basis) == ("given", "assumed")
    sharded = large("cluster.signals.write_rate=2GB", "training.zero_stage=3")
    assert sharded.estimate.checkpoint_seconds == pytest.approx(12 * parameters / 32 / 2e9)
    assert any("less than twice the 19.1s" in note for note in large("cluster.signals.lead=30s").warnings)
    with pytest.raises(
        InputError, match=r"less than twice the 9\.5s of a checkpoint of 104\.7GiB at 2 GB a second"
    ) as told:
        large("cluster.signals.lead=15s", "cluster.signals.write_rate=2GB")
    assert "8s of it for the 15GiB that the first rank writes alone" in str(told.value)


def test_what_the_first_rank_writes_alone_is_said_where_it_makes_a_checkpoint_slow():
    said = lambda *values: next(note for note in large(*values).notes if "a checkpoint of" in note)  # noqa: E731
    assert said().startswith(
        "a checkpoint of 104.7GiB takes about 19.1s at an assumed 1 GB a second and node, 16.1s of it for the 15GiB "
        "that the first rank writes alone, and 3s for the rest, which 32 nodes write together; measure,"
    )
    assert large().estimate.checkpoint_alone_bytes == 2 * large().estimate.parameters
    sharded = said("training.zero_stage=3")
    assert sharded.startswith("a checkpoint of 89.7GiB takes about 3s at an assumed 1 GB a second and node; measure,")
    # The seconds are those of its words: 89.7 GiB by 32 nodes, each 1 GB a second.
    assert round(89.7 * 1.024**3 / 32, 1) == 3.0


def test_a_mixture_of_experts_is_planned_and_blocked_unless_a_program_of_ones_own_trains_it():
    made = large(recipe="moe-8x7b")
    assert made.estimate.parameters == 46_702_792_704
    assert made.blocked.startswith("render and launch refuse moe-8x7b: it is a mixture of 8 experts")
    assert "trains dense models only" in made.blocked
    own = large("program={argv: [train], checkpoint: {directory: '{run_dir}/c'}}", recipe="moe-8x7b")
    assert own.blocked is None


def test_a_plan_can_be_read_back_from_its_json():
    for made in (plan(), large(), large(recipe="moe-8x7b")):
        text = made.model_dump_json()
        assert Plan.model_validate_json(text) == made


@pytest.mark.parametrize("known", ["no", "unknown"])
def test_without_internet_all_is_kept_offline(known):
    made = plan(f"cluster.internet.compute={known}")
    assert {name: variable.value for name, variable in made.environment.items()} == dict.fromkeys(
        ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"
    )
    assert any("is unknown: all is kept offline" in note for note in made.notes) == (known == "unknown")
    assert "have no internet" in refused(f"cluster.internet.compute={known}", "tracking.wandb=online")
    assert plan("tracking.wandb=online").environment == {}


def test_a_chain_that_may_not_work_is_said():
    known = "cluster.chain={strategy: prequeued, sbatch_inside: %s}"
    assert plan(known % "yes").notes == plan(known % "no").notes == ()
    told = "so 3 jobs are queued at launch, and each tries to queue the next ones"
    assert told in plan(known % "unknown").notes[0]
    assert "ends with its first job" in plan(known % "unknown", "chain.strategy=inside").notes[0]
    rows = "cluster.queues=[{name: a, purpose: production, max_nodes: 2, max_walltime: 1h, max_jobs: 2}]"
    assert plan(known % "no", rows, "chain.jobs=2").queue.max_jobs == 2
    assert "chain.jobs 3: queue a of sandbox takes at most 2 jobs" in refused(known % "no", rows)


def test_a_queue_that_takes_fewer_jobs_than_the_chain_keeps_is_said() -> None:
    rows = "cluster.queues=[{name: one, purpose: production, max_nodes: 2, max_walltime: 1h, max_jobs: %d}]"
    for settings in ((), ("chain.jobs=3",)):
        made = plan(rows % 1, *settings)
        assert made.chain.jobs == 1
        (warning,) = made.warnings
        assert warning.startswith(
            "queue one of sandbox takes at most 1 job of a user (--set cluster.queues): none waits"
        )
        assert "`pretrainctl reconcile`" in warning
    made = plan(rows % 2, "chain.jobs=4")
    assert made.warnings == ()
    assert made.chain.jobs == 2
    (note,) = made.notes
    assert note.startswith("chain.jobs 4: queue one of sandbox takes at most 2 jobs of a user")
    assert note.endswith("so the run keeps 2 at once")
    assert plan(rows % 2, "chain.jobs=2").notes == ()


def test_more_spares_than_nodes_that_train_are_a_warning() -> None:
    assert plan("resources.spares=2").warnings == ()
    (warning,) = plan("resources.spares=99").warnings
    assert warning.startswith(
        "each job asks for 101 nodes, of which 2 train and 99 are spare (resources.spares): 99/101"
    )


def notes(*settings: str) -> str:
    return "\n".join(make_plan("quickstart", "sandbox", set_values=settings, directory=Path("/home/you")).notes)


def test_a_checkpoint_beyond_the_last_step_is_a_note() -> None:
    assert "every_steps 161 is beyond the last of 160 steps" in notes("checkpoint.every_steps=161")
    assert "every_steps" not in notes("checkpoint.every_steps=160")


def test_a_chain_that_does_not_reach_the_target_says_who_tops_it_up() -> None:
    queued = ("chain.strategy=prequeued", "chain.jobs=2")
    assert "2 jobs are queued at launch, and about" in notes(*queued, "resources.seconds_per_step=60")
    assert "may not reach the target" in notes(*queued, "resources.seconds_per_step=null")
    assert "reconcile" not in notes(*queued, "resources.seconds_per_step=0.1")
    assert "reconcile" not in notes("chain.strategy=inside", "resources.seconds_per_step=60")


def test_a_cost_is_called_an_estimate() -> None:
    def cost(seconds: str) -> str:
        return make_plan("quickstart", "sandbox", set_values=[f"resources.seconds_per_step={seconds}"]).cost()

    assert cost("0.1") == "~0.0756 node-hours in about one job, of at most 0.67"
    assert "node-hours in about" in cost("60")
    assert cost("null") == "how many jobs it takes is unknown, each of at most 0.67 node-hours"


@pytest.mark.parametrize(
    ("stage", "nodes", "hint"), [(1, 32, "use a higher"), (2, 32, "use a higher"), (3, 1, "use more nodes")]
)
def test_a_hint_on_memory_names_only_what_helps(stage: int, nodes: int, hint: str) -> None:
    values = [f"training.zero_stage={stage}", f"resources.nodes={nodes}", "cluster.account.name=a"]
    with pytest.raises(InputError, match="model states of") as caught:
        make_plan("llama-70b", "leonardo", set_values=values)
    assert caught.value.hint.startswith(hint)


def test_runs_on_a_storage_tier_that_is_purged_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETRAINCTL_RUNS", "/leonardo_scratch/large/userexternal/me/runs")
    made = make_plan("llama-8b", "leonardo", set_values=["cluster.account.name=a"])
    assert any("the run folder, with its checkpoints" in note and "40 days" in note for note in made.notes)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("cluster.liveness.interval=1e-9", "at least 0.1 is expected, not 1e-09"),
        ("cluster.liveness.closed_after=1e-9", "at least 0.1 is expected, not 1e-09"),
        ("cluster.liveness.silent_after=1e300", "at most 86400 is expected, not 1e+300"),
        ("cluster.hang.factor=1e308", "at most 1000 is expected, not 1e+308"),
        ("cluster.hang.start_per_node=1e300", "at most 3600 is expected, not 1e+300"),
        ("resources.seconds_per_step=1e300", "at most 86400 is expected, not 1e+300"),
        ("recovery.node_hours=1e300", "1e+300 is more than there can be, at most 1000000000 is taken"),
        ("training.tokens=1e300", "1.00e+300 is more than there can be, at most 1000000000000000000 is taken"),
    ],
)
def test_numbers_that_cannot_be_meant(setting: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        make_plan("quickstart", "sandbox", set_values=[setting])
    assert says in str(caught.value)
    assert len(str(caught.value)) < 200
