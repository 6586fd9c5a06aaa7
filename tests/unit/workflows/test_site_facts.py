"""What is known of each supercomputer, as it shows in a plan and in what is rendered."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.schema.cluster import ClusterProfile
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle

HOME = Path("/home/you")
ACCOUNT = "cluster.account.name=ab12"
CLUSTERS = ("marenostrum5", "leonardo", "jupiter")
EHPC = "cluster.families=[ehpc]"


def plan(cluster, *set_values, recipe="llama-8b"):
    given = [ACCOUNT, *([EHPC] if cluster == "marenostrum5" else []), *set_values]
    return make_plan(recipe, cluster, set_values=given, directory=HOME)


def rendered(cluster, *set_values, **given):
    launch, _, bundle = render_bundle(plan(cluster, *set_values, **given), HOME / "runs/a", python="/opt/bin/python")
    return launch, bundle.files


def on_nodes(nodes):
    return (f"resources.nodes={nodes}", f"training.global_batch={nodes * 8} samples")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_shipped_profile_names_no_account_and_gives_source_and_date_for_its_values(cluster):
    profile = catalog.load_profile(cluster)
    assert profile.account.name is None
    assert profile.families == ()
    assert profile.provenance.source
    assert profile.provenance.as_of
    for variables in (profile.environment, *profile.workloads.values()):
        for name, variable in variables.items():
            assert variable.source, f"{name} has no source"
    for row in profile.queues:
        assert row.partition, f"{row.name}: the default partition of a site is not relied on"


# --- MareNostrum 5 ---


def test_marenostrum5_asks_20_cpus_a_gpu_and_never_for_memory():
    directives = plan("marenostrum5").directives
    assert directives["ntasks-per-node"] == "4"
    assert directives["cpus-per-task"] == "20"
    assert directives["gres"] == "gpu:4"
    assert "exclusive" in directives
    assert "mem" not in directives
    with pytest.raises(InputError, match="wants 20 CPUs with each GPU: 4 tasks x 10 CPUs are 40, and 4 GPUs need 80"):
        plan("marenostrum5", "cluster.tasks.cpus_per_task=10")


def test_marenostrum5_queues_follow_the_allocation():
    assert plan("marenostrum5").directives["qos"] == "acc_ehpc"
    assert plan("marenostrum5", "cluster.families=[xehpc]").directives["qos"] == "acc_xehpc"
    for family in ("resa", "bsccs"):
        made = plan("marenostrum5", f"cluster.families=[{family}]")
        assert made.directives["qos"] == f"acc_{family}"
        for limit in ("max_nodes", "max_walltime"):
            assert f"{limit} of queue acc_{family} on marenostrum5 is unknown and was not checked" in made.notes
    assert all(row.qos for row in plan("marenostrum5").profile.queues)


def test_marenostrum5_ehpc_ends_at_100_nodes_and_72_hours():
    assert plan("marenostrum5", *on_nodes(100), "resources.walltime=72h").queue.name == "acc_ehpc"
    with pytest.raises(InputError, match="acc_ehpc: 101 nodes, at most 100"):
        plan("marenostrum5", *on_nodes(101))
    with pytest.raises(InputError, match="acc_ehpc: 3-01:00:00, at most 3-00:00:00"):
        plan("marenostrum5", *on_nodes(100), "resources.walltime=73h")
    # Who may use both gets the first that fits.
    both = "cluster.families=[ehpc, xehpc]"
    assert plan("marenostrum5", both, *on_nodes(100)).queue.name == "acc_ehpc"
    assert plan("marenostrum5", both, *on_nodes(128)).queue.name == "acc_xehpc"


def test_marenostrum5_debug_has_8_nodes_for_2_hours():
    debug = "resources.queue=acc_debug"
    assert plan("marenostrum5", debug, *on_nodes(8), "resources.walltime=2h").directives["qos"] == "acc_debug"
    for more in (on_nodes(9), ("resources.walltime=3h",)):
        with pytest.raises(InputError, match="acc_debug: "):
            plan("marenostrum5", debug, *on_nodes(8), "resources.walltime=2h", *more)


def test_marenostrum5_is_offline_from_end_to_end_and_its_image_comes_from_outside():
    launch, _ = rendered("marenostrum5")
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        assert launch.environment[name] == "1"
    assert launch.environment["WANDB_MODE"] == "offline"
    assert any("reach no package index" in note for note in plan("marenostrum5").notes)
    image = "cluster.container.image=/gpfs/projects/ehpc01/a.sif"
    launch, files = rendered("marenostrum5", image)
    assert launch.container[:3] == ("singularity", "exec", "--nv")
    assert launch.container[-1] == "/gpfs/projects/ehpc01/a.sif"
    assert "module load singularity\n" in files["job.sbatch"]
    assert launch.program[0] == "python3"
    assert any("made for x86_64" in note for note in plan("marenostrum5", image).notes)


def test_marenostrum5_asks_for_the_module_of_the_python():
    def notes(*set_values):
        return [note for note in plan("marenostrum5", *set_values).notes if "brings Python" in note]

    assert "python/3.11.5-gcc" in notes()[0]
    assert notes("cluster.modules=[python/3.11.5-gcc]") == []


def test_marenostrum5_network():
    launch, _ = rendered("marenostrum5")
    assert launch.environment["NCCL_IB_HCA"] == "mlx5_0,mlx5_1,mlx5_4,mlx5_5"
    assert launch.environment["NCCL_NVLS_ENABLE"] == "0"
    assert (launch.address.kind, launch.address.suffix, launch.address.names) == ("hostname", "", ())


def test_marenostrum5_caches_go_to_the_node():
    assert 'caches="${TMPDIR:-/tmp}/pretrainctl-$SLURM_JOB_ID"' in rendered("marenostrum5")[1]["task.sh"]


# --- Leonardo ---


@pytest.mark.parametrize(("nodes", "qos"), [(1, None), (64, None), (65, "boost_qos_bprod"), (256, "boost_qos_bprod")])
def test_leonardo_queue_follows_the_nodes(nodes, qos):
    made = plan("leonardo", *on_nodes(nodes))
    assert made.directives.get("qos") == qos
    assert made.directives["partition"] == "boost_usr_prod"


def test_leonardo_spares_count():
    assert plan("leonardo", *on_nodes(64), "resources.spares=1").directives["qos"] == "boost_qos_bprod"


def test_leonardo_limits():
    with pytest.raises(InputError, match="boost_qos_bprod: 257 nodes, at most 256"):
        plan("leonardo", *on_nodes(257))
    with pytest.raises(InputError, match="normal: 1-01:00:00, at most 1-00:00:00"):
        plan("leonardo", "resources.walltime=25h")
    with pytest.raises(InputError, match="boost_qos_dbg: 3 nodes, at most 2"):
        plan("leonardo", *on_nodes(3), "resources.queue=boost_qos_dbg", "resources.walltime=30m")
    long = ("resources.queue=boost_qos_lprod", "resources.walltime=4d")
    assert plan("leonardo", *on_nodes(3), *long).directives["time"] == "4-00:00:00"


def test_leonardo_resources_and_network():
    made = plan("leonardo")
    assert (made.directives["cpus-per-task"], made.directives["mem"], made.directives["gres"]) == ("8", "0", "gpu:4")
    launch, files = rendered("leonardo")
    assert launch.address.kind == "ipv4"
    assert launch.environment["NCCL_SOCKET_IFNAME"] == "ib0"
    assert 'caches="$PRETRAINCTL_RUN_DIR/caches/' in files["task.sh"]
    assert "module purge\nmodule load python/3.11.7\n" in files["job.sbatch"]


# --- JUPITER ---


def test_jupiter_jobs_last_12_hours():
    assert plan("jupiter").directives["time"] == "0-12:00:00"
    assert plan("jupiter").directives["partition"] == "booster"
    with pytest.raises(InputError, match="booster: 0-13:00:00, at most 0-12:00:00"):
        plan("jupiter", "resources.walltime=13h")


def test_jupiter_gives_whole_nodes_of_288_cores_by_itself():
    made = plan("jupiter")
    assert made.directives["cpus-per-task"] == "72"
    assert "exclusive" not in made.directives
    assert "mem" not in made.directives
    assert made.estimate.site_units_per_job == 32 * 12 * 288
    assert made.profile.node.arch == "aarch64"


def test_jupiter_ranks_meet_on_the_fast_network():
    launch, _ = rendered("jupiter")
    assert launch.address.names == ("{host}-interconnect-1.jupiter.internal",)
    assert (launch.address.kind, launch.address.suffix, launch.address.one_node_local) == ("ipv4", "", True)


def test_jupiter_pipeline_traffic_goes_without_gpudirect():
    assert rendered("jupiter")[0].environment["NCCL_NET_GDR_LEVEL"] == "2"
    launch, files = rendered("jupiter", "workloads=[pipeline-parallel]")
    assert launch.environment["NCCL_NET_GDR_LEVEL"] == "0"
    assert "NCCL_NET_GDR_LEVEL=0  # pipeline traffic between nodes hangs with GPUDirect" in files["job.sbatch"]
    notes = plan("leonardo", "workloads=[pipeline-parallel]").notes
    assert "leonardo has no variables of its own for the workload pipeline-parallel (it has: none)" in notes


# --- a queue that is not chosen by itself ---


@pytest.mark.parametrize(
    ("nodes", "settings", "names"),
    [
        (2, ("resources.walltime=3d",), "resources.queue=boost_qos_lprod (long)"),
        (80, ("resources.queue=normal",), "resources.queue=boost_qos_bprod (production)"),
        (8, ("resources.queue=boost_qos_dbg",), "resources.queue=normal (production)"),
        (1, ("resources.queue=boost_qos_bprod", "resources.walltime=30m"), "resources.queue=normal (production) or "),
        (300, (), "change resources.nodes, resources.walltime or resources.queue"),
        (4, ("resources.walltime=3d",), "change resources.nodes, resources.walltime or resources.queue"),
    ],
)
def test_a_queue_that_would_take_it_is_named_and_takes_it(nodes, settings, names):
    values = [*on_nodes(nodes), *settings]
    with pytest.raises(InputError, match=f"no queue of leonardo takes {nodes} nodes") as caught:
        plan("leonardo", *values)
    assert caught.value.hint.startswith(names)
    if names.startswith("resources.queue="):
        assert plan("leonardo", *values, names.split()[0]).queue.name == names.split()[0].partition("=")[2]


def test_a_queue_of_another_allocation_is_not_offered():
    with pytest.raises(InputError, match="no queue of marenostrum5 takes 101 nodes") as caught:
        plan("marenostrum5", *on_nodes(101))
    assert "acc_xehpc" not in caught.value.hint
    assert "--set cluster.families='[NAME]' of bsccs, resa, xehpc" in caught.value.hint


def test_marenostrum5_asks_for_the_account_first_and_then_in_its_own_words_for_the_kind_of_allocation():
    with pytest.raises(InputError, match="refuses jobs without an account") as caught:
        make_plan("llama-8b", "marenostrum5", directory=HOME)
    assert "`families: [NAME]`, your kind of allocation, of bsccs, ehpc, resa, xehpc" in caught.value.hint
    with pytest.raises(
        InputError, match="each of these queues of marenostrum5 is for one kind of allocation"
    ) as caught:
        make_plan("llama-8b", "marenostrum5", set_values=["cluster.account.name=ab12"], directory=HOME)
    assert "acc_ehpc (ehpc)" in str(caught.value)
    assert "no queue of" not in str(caught.value)
    assert "--set cluster.families='[NAME]'" in caught.value.hint
    assert "resources.queue=acc_debug (debug)" in caught.value.hint


# --- all three ---


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_job_without_account_is_refused_with_three_ways_to_give_one(cluster, monkeypatch, tmp_path):
    families = [EHPC] if cluster == "marenostrum5" else []
    with pytest.raises(InputError, match=f"{cluster} refuses jobs without an account") as caught:
        make_plan("llama-8b", cluster, set_values=families, directory=HOME)
    for way in ("--set cluster.account.name=", "PRETRAINCTL_ACCOUNT", f"extends: {cluster}"):
        assert way in caught.value.hint
    own = tmp_path / "mine.yaml"
    own.write_text(f"extends: {cluster}\naccount: {{name: from_file}}\n")
    account = lambda *values: make_plan(  # noqa: E731
        "llama-8b", str(own), set_values=[*families, *values], directory=HOME
    ).directives["account"]
    assert account() == "from_file"
    monkeypatch.setenv("PRETRAINCTL_ACCOUNT", "from_variable")
    assert account() == "from_variable"
    assert account("cluster.account.name=from_flag") == "from_flag"
    monkeypatch.setenv("PRETRAINCTL_ACCOUNT", "no account")
    with pytest.raises(InputError, match=r"\$PRETRAINCTL_ACCOUNT: account.name"):
        account()


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_is_unknown_is_said(cluster):
    made = plan(cluster)
    assert any("whether sbatch works inside jobs" in note for note in made.notes)
    launch, _ = rendered(cluster)
    assert (launch.chain, launch.chained_jobs) == ("prequeued", 2)
    assert any("a checkpoint of 104.7GiB takes about 19.1s at an assumed 1 GB a second" in note for note in made.notes)
    (speed,) = [note for note in made.notes if "rest on" in note]
    assert "model FLOPs a second and GPU, measured on a dense model of" in speed
    assert "a third more operations are counted for training.recompute" in speed


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_both_ways_to_start_ranks(cluster):
    launch, files = rendered(cluster, "cluster.tasks.launcher=direct")
    assert (launch.srun.tasks_per_node, launch.srun.ranks_per_task, launch.srun.world_size) == (4, 1, 128)
    assert 'export RANK="$SLURM_PROCID"' in files["task.sh"]
    cpus = launch.srun.cpus_per_task
    made = plan(cluster, "cluster.tasks.launcher=torchrun")
    assert made.directives["ntasks-per-node"] == "1"
    assert made.directives["cpus-per-task"] == str(4 * cpus)
    launch, files = rendered(cluster, "cluster.tasks.launcher=torchrun")
    assert (launch.srun.tasks, launch.srun.ranks_per_node, launch.srun.world_size) == (32, 4, 128)
    assert launch.srun.cpus_per_task == 4 * cpus
    assert launch.environment["OMP_NUM_THREADS"] == str(cpus)
    assert "RANK=" not in files["task.sh"]
    for option in ("--nnodes=32", "--nproc-per-node=4", '--node-rank="$SLURM_PROCID"', '--master-addr="$MASTER_ADDR"'):
        assert f"  {option}\n" in files["task.sh"]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_signal_comes_in_time_and_nothing_requeues(cluster):
    directives = plan(cluster).directives
    assert directives["signal"] == "B:USR1@600"
    assert "no-requeue" in directives
    assert directives["open-mode"] == "append"


@pytest.mark.parametrize(
    ("cluster", "path", "says"),
    [
        ("leonardo", "/leonardo_scratch/large/userexternal/you/x", "older than 40 days are removed"),
        ("jupiter", "/e/scratch/exalab/x", "older than 90 days are removed"),
        ("jupiter", "/e/fscratch/exalab/x", "older than 30 days are removed"),
        ("marenostrum5", "/gpfs/scratch/ehpc01/x", "at an age that is unknown"),
        ("marenostrum5", "/gpfs/projects/ehpc01/x", None),
    ],
)
def test_where_checkpoints_do_not_last_it_is_said(cluster, path, says):
    notes = [note for note in plan(cluster, f"checkpoint.directory={path}").notes if "checkpoint.directory" in note]
    assert len(notes) == (says is not None)
    assert says is None or says in notes[0]


@pytest.mark.parametrize(
    ("host", "cluster"),
    [
        ("alogin2", "marenostrum5"),
        ("as01r1b05", "marenostrum5"),
        ("login05-ext.leonardo.local", "leonardo"),
        ("lrdn0041.leonardo.local", "leonardo"),
        ("jpbl-s01-02.jupiter.internal", "jupiter"),
        ("jpbo-012-34", "jupiter"),
        ("glogin1", None),
        ("login01.example.org", None),
    ],
)
def test_hosts_are_recognised(host, cluster):
    assert catalog.here(host) == cluster


def test_a_field_of_a_profile_is_described():
    def fields(model):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"

    fields(ClusterProfile)
