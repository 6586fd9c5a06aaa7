"""Everything that is refused before anything is submitted: one line that names the number, the limit, its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.errors import CheckpointError, InputError
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle

HOME = Path("/home/you")
MINE = {
    "marenostrum5": ["cluster.account.name=ab12", "cluster.families=[ehpc]"],
    "leonardo": ["cluster.account.name=ab12"],
    "jupiter": ["cluster.account.name=ab12"],
    "sandbox": [],
}

TWICE = (
    "cluster.queues=[{name: a, purpose: debug, max_nodes: 1, max_walltime: 1h}, "
    "{name: a, purpose: long, max_nodes: 1, max_walltime: 1h}]"
)
REFUSALS = [
    # recipe, cluster, settings, what the line must say: the number and the limit, and the source of a site's limit
    ("llama-8b", "marenostrum5", ["resources.nodes=128"], ["128 nodes, at most 100", "queue table", "2026-04"]),
    ("llama-8b", "marenostrum5", ["resources.walltime=73h"], ["3-01:00:00, at most 3-00:00:00", "2026-04"]),
    ("llama-8b", "marenostrum5", ["resources.queue=acc_debug"], ["32 nodes, at most 8", "2026-04"]),
    ("llama-8b", "marenostrum5", ["cluster.families=[]"], ["does not say of which kind yours is: acc_ehpc (ehpc), "]),
    ("llama-8b", "marenostrum5", ["resources.queue=acc_resa"], ["for the family resa, yours: ehpc"]),
    ("llama-8b", "marenostrum5", ["cluster.families=[bsc]"], ["no queue is of the family 'bsc'", "ehpc", "xehpc"]),
    ("llama-8b", "marenostrum5", ["cluster.tasks.cpus_per_task=16"], ["20 CPUs with each GPU", "64", "80", "2026-10"]),
    ("llama-8b", "marenostrum5", ["resources.gpus_per_node=0"], ["20 CPUs with each GPU", "0 GPUs need 0", "2026-10"]),
    ("llama-8b", "marenostrum5", ["cluster.tasks.cpus_per_task=21"], ["4 tasks x 21 CPUs", "80 CPUs", "2026-04"]),
    ("llama-8b", "marenostrum5", ["cluster.account.name=null"], ["refuses jobs without an account", "2026-10"]),
    ("llama-8b", "marenostrum5", ["chain.jobs=21"], ["chain.jobs: at most 20 is expected, not 21"]),
    ("llama-8b", "marenostrum5", ["cluster.chain.jobs=1000000"], ["chain.jobs: at most 20 is expected, not 1000000"]),
    (
        "llama-8b",
        "marenostrum5",
        ["cluster.queues.0.max_jobs=2", "cluster.queues.0.max_nodes=64", "resources.nodes=32"],
        ["chain.jobs 3: queue", "takes at most 2 jobs of a user", "max_jobs"],
    ),
    (
        "llama-8b",
        "marenostrum5",
        ["resources.spares=99"],
        ["no queue of marenostrum5 takes 131 nodes (32 and 99 spare)", "131 nodes, at most 100", "2026-04"],
    ),
    ("llama-8b", "marenostrum5", ["tracking.wandb=online"], ["wandb online", "have no internet", "2024-05-23"]),
    ("llama-8b", "marenostrum5", ["resources.queue=acc_ehcp"], ["has no queue 'acc_ehcp'"]),
    ("llama-8b", "leonardo", ["resources.nodes=257"], ["257 nodes, at most 256", "CINECA", "2025-03-20"]),
    ("llama-8b", "leonardo", ["resources.walltime=25h"], ["1-01:00:00, at most 1-00:00:00", "CINECA", "2025-03-20"]),
    ("llama-8b", "leonardo", ["resources.queue=boost_qos_bprod"], ["32 nodes, at least 65", "CINECA"]),
    ("llama-8b", "leonardo", ["resources.queue=boost_qos_lprod"], ["32 nodes, at most 3", "CINECA"]),
    ("llama-8b", "leonardo", ["resources.queue=boost_qos_dbg"], ["32 nodes, at most 2", "CINECA"]),
    ("llama-8b", "leonardo", ["cluster.tasks.cpus_per_task=9"], ["4 tasks x 9 CPUs", "32 CPUs", "CINECA"]),
    ("llama-8b", "leonardo", ["cluster.account.name=null"], ["refuses jobs without an account", "CINECA"]),
    ("llama-8b", "leonardo", ["resources.gpus_per_node=8"], ["gpus_per_node 8", "has 4", "CINECA"]),
    ("llama-8b", "leonardo", ["resources.gpus_per_node=2"], ["4 ranks", "2 GPUs", "CINECA"]),
    (
        "llama-70b",
        "leonardo",
        ["training.zero_stage=1"],
        ["70.6B parameters", "264.4GiB", "59.6GiB", "ZeRO paper", "CINECA"],
    ),
    ("llama-8b", "jupiter", ["resources.walltime=13h"], ["0-13:00:00, at most 0-12:00:00", "scontrol", "2026-09"]),
    ("llama-8b", "jupiter", ["resources.nodes=6144"], ["6144 nodes, at most 5643", "2026-09"]),
    ("llama-8b", "jupiter", ["tracking.wandb=online"], ["have no internet", "JSC", "2026-09-02"]),
    ("llama-8b", "jupiter", ["cluster.account.name=null"], ["refuses jobs without an account", "JSC"]),
    (
        "llama-8b",
        "jupiter",
        ["resources.tasks_per_node=5", "training.global_batch=320 samples"],
        ["5 ranks on each node and 4 GPUs", "2026-11"],
    ),
    ("llama-8b", "jupiter", ["cluster.signals.write_rate=1MB"], ["lead time 10m00s", "less than twice", "104.7GiB"]),
    (
        "llama-8b",
        "leonardo",
        ["cluster.chain.sbatch_inside=no", "chain.strategy=inside"],
        ["sbatch does not work inside jobs", "(--set cluster.chain.sbatch_inside)"],
    ),
    (
        "llama-8b",
        "leonardo",
        ["cluster.storage=[{name: node disk, path: /local, lasts: job}]", "checkpoint.directory=/local/ckpt"],
        ["/local/ckpt", "erased when the job ends", "(--set cluster.storage)"],
    ),
    # what does not depend on a site: the numbers that contradict each other
    ("llama-8b", "jupiter", ["resources.nodes=33"], ["512", "2 x", "132 data-parallel ranks", "not divisible by 264"]),
    ("llama-8b", "jupiter", ["training.global_batch=4M tokens"], ["4000000 tokens is no whole number", "8192"]),
    ("llama-8b", "jupiter", ["data.sequence_length=16384"], ["sequence_length 16384", "context 8192"]),
    ("llama-8b", "jupiter", ["model.heads=30"], ["hidden 4096 is not a multiple of heads 30"]),
    ("llama-8b", "jupiter", ["model.kv_heads=5"], ["heads 32 is not a multiple of kv_heads 5"]),
    ("llama-8b", "jupiter", ["model.experts={count: 4, active: 8}"], ["active 8 is more than the 4 experts"]),
    ("llama-8b", "jupiter", ["training.schedule.warmup_steps=1M"], ["warmup_steps"]),
    ("llama-8b", "jupiter", ["training.optimizer.betas=[0.9, 1.0]"], ["betas.1", "less than 1"]),
    ("llama-8b", "jupiter", ["training.zero_stage=4"], ["training.zero_stage", "0, 1, 2 or 3"]),
    ("llama-8b", "jupiter", ["training.tokens=1M"], ["warmup_steps 8000 exceeds the 1 steps"]),
    ("llama-8b", "jupiter", ["resources.walltime=10m"], ["walltime 10m00s", "lead time 10m00s"]),
    ("llama-8b", "jupiter", ["resources.walltime=12"], ["12 is not a duration"]),
    ("llama-8b", "jupiter", ["recovery.policies={gpu_omo: stop}"], ["'gpu_omo' is no failure class"]),
    ("llama-8b", "jupiter", ["recovery.policies.user_cancel=restart"], ["policies.user_cancel cannot be changed"]),
    ("llama-8b", "jupiter", ["recovery.node_hours=0"], ["recovery.node_hours"]),
    ("llama-8b", "jupiter", ["resources.walltime=11m"], ["660 s leaves no time to train", "120 s", "600 s"]),
    ("llama-8b", "jupiter", ["checkpoint.directory=$SCRATCH/ckpt"], ["$SCRATCH/ckpt", "names a variable"]),
    ("llama-8b", "jupiter", ["resources.nodse=4"], ["unknown key 'nodse'"]),
    ("llama-8b", "jupiter", ["clusters.jupiter.resources.nodes=4"], ["`clusters:` is read from files only"]),
    ("llama-8b", "jupiter", ["deepspeed.config={elasticity: {}}"], ["0.19.8", "elasticity"]),
    ("llama-8b", "jupiter", ["deepspeed.version=latest"], ["deepspeed.version"]),
    ("llama-8b", "jupiter", ["cluster.queues.0.max_nodes=many"], ["max_nodes"]),
    ("llama-8b", "jupiter", ["cluster.queues.0.partition=a b"], ["'a b' cannot be given to Slurm"]),
    ("llama-8b", "jupiter", ["cluster.rendezvous.names=['{host} x']"], ["rendezvous.names"]),
    ("llama-8b", "jupiter", ["cluster.chain={strategy: inside, sbatch_inside: no}"], ["sbatch_inside says no"]),
    ("llama-8b", "jupiter", ["cluster.storage=[{name: x, lasts: job}]"], ["neither a path nor a variable"]),
    (
        "llama-8b",
        "jupiter",
        ["cluster.storage=[{name: x, path: /x, lasts: job, purge_days: 3}]"],
        ["purge_days, but lasts: job"],
    ),
    ("llama-8b", "jupiter", ["environment.SLURM_JOB_ID=7"], ["environment", "SLURM_JOB_ID cannot be set here: Slurm"]),
    ("llama-8b", "jupiter", ["environment={SBATCH_QOS: a}"], ["environment", "SBATCH_QOS cannot be set here"]),
    ("llama-8b", "jupiter", ["environment={PRETRAINCTL_ATTEMPT: '1'}"], ["PRETRAINCTL_ATTEMPT cannot be set here"]),
    ("llama-8b", "jupiter", ["environment={RANK: '0'}"], ["RANK cannot be set here: each task has its own"]),
    ("llama-8b", "jupiter", ["environment={WORLD_SIZE: '8'}"], ["WORLD_SIZE cannot be set here", "resources.nodes"]),
    ("llama-8b", "jupiter", ["environment={MASTER_ADDR: a}"], ["MASTER_ADDR cannot be set here", "rendezvous"]),
    (
        "llama-8b",
        "jupiter",
        ["cluster.environment.MASTER_PORT={value: '1', reason: r, source: s}"],
        ["MASTER_PORT cannot be set here"],
    ),
    (
        "llama-8b",
        "jupiter",
        ["cluster.workloads={x: {LOCAL_RANK: {value: '1', reason: r, source: s}}}"],
        ["LOCAL_RANK cannot be set here"],
    ),
    (
        "llama-8b",
        "jupiter",
        [TWICE],
        ["two queues are called 'a'"],
    ),
]


@pytest.mark.parametrize(
    ("recipe", "cluster", "set_values", "says"),
    REFUSALS,
    ids=[f"{cluster}: {set_values[0][:60]}" for _, cluster, set_values, _ in REFUSALS],
)
def test_refused_with_the_limit_and_its_source(recipe, cluster, set_values, says):
    with pytest.raises(InputError) as caught:
        make_plan(recipe, cluster, set_values=[*MINE[cluster], *set_values], directory=HOME)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.hint or message.startswith("--set "), "a refusal says what to do, or which setting it is"
    for part in says:
        assert part in message


def test_there_are_at_least_thirty_refusals_each_of_its_own():
    seen = {(cluster, tuple(set_values)) for _, cluster, set_values, _ in REFUSALS}
    assert len(seen) == len(REFUSALS) >= 30


@pytest.mark.parametrize("character", [":", ","])
def test_a_path_that_a_container_cannot_bind(character):
    settings = [*MINE["leonardo"], "cluster.container.image=/x.sif"]
    plan = make_plan("llama-8b", "leonardo", set_values=settings, directory=HOME)
    with pytest.raises(InputError, match="cannot be bound into a container"):
        render_bundle(plan, HOME / f"runs{character}1" / "a")


# --- checkpoints of another world size, found by their names before anything waits in a queue ---


def shards(folder: Path, data_ranks: int, model_ranks: int = 1) -> Path:
    tag = folder / "global_step4000"
    tag.mkdir(parents=True)
    for model_rank in range(model_ranks):
        for rank in range(data_ranks):
            (tag / f"bf16_zero_pp_rank_{rank}_mp_rank_{model_rank:02d}_optim_states.pt").touch()
    return folder


def test_32_ranks_saved_and_128_would_load(tmp_path):
    folder = shards(tmp_path / "ckpt", 32)
    settings = [*MINE["jupiter"], f"checkpoint.directory={folder}"]
    with pytest.raises(CheckpointError) as caught:
        make_plan("llama-8b", "jupiter", set_values=settings, directory=tmp_path)
    assert "32" in str(caught.value)
    assert "128" in str(caught.value)
    assert "ds_to_universal" in caught.value.hint
    make_plan("llama-8b", "jupiter", set_values=[*settings, "resources.nodes=8"], directory=tmp_path)


def test_4_ranks_of_4_slices_saved_and_8_would_load(tmp_path):
    folder = shards(tmp_path / "ckpt", 4, 4)
    program = f"program={{argv: [train], checkpoint: {{directory: {folder}}}}}"
    settings = [*MINE["jupiter"], program, "resources.nodes=2"]
    with pytest.raises(CheckpointError, match=r"4.*8"):
        make_plan("llama-8b", "jupiter", set_values=settings, directory=tmp_path)


def test_a_folder_without_checkpoints_or_with_fitting_ones_is_taken(tmp_path):
    for folder in (tmp_path / "none", shards(tmp_path / "same", 128)):
        settings = [*MINE["jupiter"], f"checkpoint.directory={folder}"]
        make_plan("llama-8b", "jupiter", set_values=settings, directory=tmp_path)


def test_variables_of_the_libraries_and_paths_are_the_users():
    chosen = {"PATH": "/opt/bin", "LD_LIBRARY_PATH": "/opt/lib", "NCCL_DEBUG": "WARN", "RANKING": "1", "SLURMISH": "1"}
    made = make_plan("quickstart", "sandbox", set_values=[f"environment={chosen}"], directory=HOME)
    assert made.recipe.environment == chosen
