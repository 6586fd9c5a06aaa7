"""What a recipe or profile says against the plan, against the site or against itself: refused, or told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.errors import InputError
from pretrainctl.units import show_estimate
from pretrainctl.workflows.explain import explain
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle

HOME = Path("/home/you")
ACCOUNT = "cluster.account.name=ab12"


def plan(*set_values, cluster="leonardo", recipe="llama-8b"):
    return make_plan(recipe, cluster, set_values=[ACCOUNT, *set_values], directory=HOME)


def refused(*set_values, **given):
    with pytest.raises(InputError) as caught:
        plan(*set_values, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- options that the plan decides ---


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--time=100-0", "resources.walltime says it"),
        ("--nodes=500", "resources.nodes"),
        ("--qos=boost_qos_dbg", "resources.queue"),
        ("--part=x", "resources.queue"),
        ("--requeue", "the chained job goes on"),
        ("--job-name=foo", "run id"),
        ("--chdir=/x", "run folder"),
        ("--output=/x", "run folder"),
        ("--error=/x", "run folder"),
        ("--array=0-3", "one job after another"),
        ("--signal=USR2@10", "cluster.signals.lead"),
        ("--export=NONE", "`environment` adds to it"),
        ("--wrap=id", "the script that is rendered"),
        ("--test-only", "submits no job"),
        ("--help", "submits no job"),
        ("--mem=5G", "cluster.request.memory"),
        ("--gpus-per-task=1", "resources.gpus_per_node"),
        ("--gres=gpu:1", "resources.gpus_per_node"),
        ("--gres=tmpfs:10g,gres/gpu:a100:1", "resources.gpus_per_node"),
        ("--cpus-per-gpu=4", "cluster.tasks.cpus_per_task"),
        ("--dependency=singleton", "wait for each other"),
        ("-C foo", "write --constraint=..."),
        ("-C=foo", "write --constraint=..."),
        ("-N 2", "write --nodes=..."),
        ("-Z", "write the long one"),
        ("--constraint foo", "--name=value"),
    ],
)
def test_an_option_that_the_plan_decides_or_that_sbatch_would_not_read_is_refused(option, says):
    message = refused(f"cluster.request.options={json.dumps([option])}")
    assert option in message
    assert says in message


def test_options_of_the_site_stay_and_a_gres_of_its_own_stands_beside_the_gpus():
    made = plan("cluster.request.options=[--constraint=a100, --reservation=r1, '--gres=tmpfs:10g', --nice=5]")
    assert made.directives["constraint"] == "a100"
    assert made.directives["reservation"] == "r1"
    assert made.directives["gres"] == "gpu:4,tmpfs:10g"
    assert "given twice" in refused("cluster.request.options=[--constraint=a, --constraint=b]")


def test_counts_of_the_training_step_are_not_for_options():
    assert "resources.nodes" in refused("cluster.tasks.srun_options=[--ntasks=1]")
    assert "write --cpus-per-task=..." in refused("cluster.tasks.srun_options=['-c 4']")
    assert plan("cluster.tasks.srun_options=[--cpu-bind=none, --mpi=pmix]").profile.tasks.srun_options


# --- sections of a recipe under `clusters:` ---


@pytest.fixture
def files(user_configuration, tmp_path):
    def write(kind, name, text):
        folder = user_configuration / kind
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(text)

    return write


def test_a_profile_that_extends_another_gets_its_sections_and_the_nearest_wins(files):
    files("cluster_profiles", "jup2", "extends: jupiter\nname: jup2\n")
    files("cluster_profiles", "jup3", "extends: jup2\nname: third\n")
    assert plan(cluster="jup2", recipe="llama-70b").geometry.nodes == 128
    assert plan(cluster="jup3", recipe="llama-70b").geometry.nodes == 128
    files(
        "recipes",
        "mine",
        "extends: llama-70b\nname: mine\nclusters:\n  third: {resources: {nodes: 64}}\n"
        "  jup2: {resources: {nodes: 32, walltime: 2h}}\n",
    )
    made = plan(cluster="jup3", recipe="mine")
    assert (made.geometry.nodes, made.recipe.resources.walltime) == (64, 7200)
    assert plan(cluster="jup2", recipe="mine").geometry.nodes == 32
    assert plan(cluster="jupiter", recipe="mine").geometry.nodes == 128
    nodes = [line.origin for line in explain("mine", "jup3", set_values=[ACCOUNT]) if "--nodes=" in line.text]
    assert "mine.yaml:4" in nodes[0]


def test_a_section_may_name_the_file_of_a_profile(files):
    files("cluster_profiles", "my-jupiter", "extends: jupiter\n")
    files("recipes", "mine", "extends: llama-8b\nclusters: {my-jupiter: {resources: {nodes: 16}}}\n")
    assert plan(cluster="my-jupiter", recipe="mine").geometry.nodes == 16
    assert plan(cluster="jupiter", recipe="mine").geometry.nodes == 32


def test_a_section_of_no_profile_brings_the_nearest_name(files):
    files("recipes", "mine", "extends: llama-8b\n\nclusters: {marenostrum: {resources: {nodes: 16}}}\n")
    with pytest.raises(
        InputError, match=r"mine\.yaml:3: clusters: there is no cluster profile 'marenostrum'"
    ) as caught:
        plan(recipe="mine")
    assert caught.value.hint == "did you mean marenostrum5?"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{resurces: {nodes: 16}}", "unknown key 'resurces' in the top"),
        ("{resources: {nodez: 16}}", "unknown key 'nodez' in resources"),
        ("{resources: {nodes: many}}", "resources.nodes: a whole number is expected"),
        ("{extends: llama-1b}", "`extends:` stands at the top of a file"),
        ("{clusters: {}}", "`clusters:` stands at the top of a file"),
    ],
)
def test_the_section_of_another_cluster_is_checked_too(files, section, says):
    files("recipes", "mine", f"extends: llama-8b\n\n\nclusters: {{jupiter: {section}}}\n")
    message = refused(recipe="mine")
    assert message.startswith(str(catalog.find("recipes", "mine")) + ":4: ")
    assert says in message


@pytest.mark.parametrize("setting", ["extends=x", "clusters.jupiter.resources.nodes=1", "cluster.extends=x"])
def test_what_only_files_say_is_not_a_setting(setting):
    assert f"--set {setting}: `" in refused(setting)
    assert "is read from files only" in refused(setting)


# --- DeepSpeed's own keys ---


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{sequence_parallel_size: 4}", "sequence_parallel_size 4: the plan has 128 data-parallel ranks"),
        ("{data_parallel_size: 32, sequence_parallel_size: 4}", "data-parallel ranks"),
        ("{tensor_parallel: {autotp_size: 4}}", "tensor_parallel.autotp_size 4"),
        ("{expert_parallel: {autoep_size: 2}}", "expert_parallel.autoep_size 2"),
        ("{zero_optimization: {zero_hpz_partition_size: 3}}", "128 ranks make no whole groups"),
        ("{zero_optimization: {zero_hpz_partition_size: 4}}", "is for ZeRO stage 3"),
        ("{zero_optimization: {offload_param: {device: cpu}}}", "is for ZeRO stage 3"),
        ("{zero_optimization: {reduce_bucket_size: .nan}}", "zero_optimization.reduce_bucket_size is nan"),
        ("{gradient_predivide_factor: 1e400}", "gradient_predivide_factor is inf"),
        ("{aio: {x: [1, -.inf]}}", "aio.x.1 is -inf"),
    ],
)
def test_a_key_that_changes_the_batch_rule_or_is_no_json_is_refused(config, says):
    assert says in refused(f"deepspeed.config={config}")


def test_keys_that_change_nothing_of_it_are_taken():
    plan("deepspeed.config={sequence_parallel_size: 1, zero_optimization: {offload_param: {device: none}}}")
    plan(
        "training.zero_stage=3",
        "deepspeed.config={zero_optimization: {zero_hpz_partition_size: 4, offload_param: {device: cpu}}}",
    )


# --- GPUs of nobody ---


def test_gpus_that_no_rank_uses_are_told_with_what_they_cost():
    made = plan("resources.tasks_per_node=1")
    (said,) = [one for one in made.warnings if "used by no rank" in one]
    assert said.startswith("3 of the 4 GPUs of each node are used by no rank, which is 3/4 of ")
    assert f"{show_estimate(made.node_hours)} node-hours to the target" in said
    assert any("2 of the 4" in one for one in plan("resources.tasks_per_node=2", cluster="jupiter").warnings)
    # Exclusive nodes are charged whole, however few GPUs are asked for.
    exclusive = plan("resources.tasks_per_node=1", "resources.gpus_per_node=1")
    assert any("3 of the 4" in one and "resources.gpus_per_node=4" in one for one in exclusive.warnings)
    assert not any("used by no rank" in one for one in plan().warnings)


# --- variables of a recipe ---


def test_a_value_of_the_recipe_is_told_beside_that_of_the_site_and_gets_none_of_its_reason():
    made = plan('environment={NCCL_IB_TIMEOUT: "18", GLOO_SOCKET_IFNAME: ib0}')
    (note,) = [note for note in made.notes if "replaces" in note]
    assert note.startswith(
        "environment.NCCL_IB_TIMEOUT 18 of the recipe replaces 22 of leonardo, which is there because:"
    )
    assert "sbatch template of a user team, 2026" in note
    script = render_bundle(made, HOME / "runs/a")[2].files["job.sbatch"]
    assert "export NCCL_IB_TIMEOUT=18\n" in script
    assert "export GLOO_SOCKET_IFNAME=ib0  # as for NCCL\n" in script
    lines = explain("llama-8b", "leonardo", set_values=[ACCOUNT, 'environment={NCCL_IB_TIMEOUT: "18"}'])
    (origin,) = [line.origin for line in lines if line.text.startswith("export NCCL_IB_TIMEOUT")]
    assert "in place of 22: rides out" in origin


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_online_where_there_is_no_internet_is_refused_as_for_tracking(name):
    assert "compute nodes of leonardo have no internet (OpenEuroLLM" in refused(f'environment={{{name}: "0"}}')
    assert "as far as is known" in refused(f'environment={{{name}: "no"}}', "cluster.internet.compute=unknown")
    assert plan(f'environment={{{name}: "yes"}}')
    assert plan(f'environment={{{name}: "0"}}', "cluster.internet.compute=yes")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("WANDB_MODE", "tracking.wandb says it"),
        ("WANDB_RUN_ID", "run id"),
        ("WANDB_RESUME", "attempts"),
        *((name, "which ends the job") for name in ("UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO")),
        *((name, "would not arrive") for name in ("RANDOM", "GROUPS", "_", "SHLVL", "LINENO")),
    ],
)
def test_a_variable_that_is_not_for_a_recipe_or_that_bash_keeps_is_refused(name, says):
    for key in ("environment", "cluster.environment"):
        value = '"5"' if key == "environment" else '{value: "5", reason: r}'
        message = refused(f"{key}.{name}={value}")
        assert f"{name} cannot be set here: " in message
        assert says in message


# --- folders ---


@pytest.mark.parametrize("folder", ["/tmp/x", "/var/tmp/x", "/dev/shm/x", "/run/user/1/x", "//tmp/x", "/gpfs/../tmp/x"])
def test_checkpoints_in_a_folder_of_each_node_are_refused(folder):
    assert "is each node's own, and temporary (Filesystem Hierarchy" in refused(f"checkpoint.directory={folder}")
    program = f"program={{argv: [train], checkpoint: {{directory: {folder}}}}}"
    assert "program.checkpoint.directory" in refused(program)
    # One machine is all nodes of the sandbox.
    assert plan(f"checkpoint.directory={folder}", cluster="sandbox", recipe="quickstart")


def test_data_and_runs_in_a_folder_of_each_node_are_told(monkeypatch):
    monkeypatch.setenv("PRETRAINCTL_RUNS", "/tmp/runs")
    monkeypatch.setenv("TMPDIR", "/scratch/job1/")
    told = plan("data.sources=[{prefix: /scratch/job1/web}]").warnings
    assert sum("compute nodes of leonardo will not find it" in one for one in told) == 2


@pytest.mark.parametrize(
    "folder",
    ["//leonardo_scratch/large/u/x", "/leonardo_work/../leonardo_scratch/large/u/x", "/leonardo_scratch/large//u"],
)
def test_a_tier_is_known_by_whatever_way_its_path_is_written(folder):
    (note,) = [note for note in plan(f"checkpoint.directory={folder}").notes if note.startswith("checkpoint.directory")]
    assert "lies on scratch of leonardo, where files older than 40 days are removed" in note
    assert "//" not in note
    assert ".." not in note


def test_checkpoints_that_a_space_does_not_hold_are_told_with_its_source():
    home = "checkpoint.directory=/e/home/jusers/u/x"
    (said,) = [one for one in plan(home, "checkpoint.keep=3", cluster="jupiter").warnings if "holds" in one]
    assert said.startswith(
        "4 checkpoints of 104.7GiB lie in /e/home/jusers/u/x at a time, 418.8GiB, and home of jupiter"
    )
    assert "18.6GiB (20 GB, 80k files; U-LM/jupiter-deep-dive" in said
    assert any(
        "10 checkpoints" in one
        for one in plan(
            home, "checkpoint.keep=0", "checkpoint.every_steps=1000", "training.tokens=41943040000", cluster="jupiter"
        ).warnings
    )
    assert not any("holds" in one for one in plan("checkpoint.directory=/e/scratch/p/x", cluster="jupiter").warnings)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ('checkpoint.directory=""', "the path is empty"),
        ('data.sources=[{prefix: ""}]', "the path is empty"),
        ('cluster.python.control=""', "the path is empty"),
        ('cluster.container.image=""', "the path is empty"),
        ("cluster.container.image=~/x.sif", "must be an absolute path"),
        ("cluster.container.image=docker://x/y", "build an image file of it"),
        ("checkpoint.directory=/scratch/$USER/x", "names a variable"),
        ("checkpoint.directory=${SCRATCH}", "names a variable"),
        ('program={argv: [a], checkpoint: {directory: ""}}', "at least 1 character is expected"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(setting, says):
    assert says in refused(setting)


# --- numbers that cannot be ---


@pytest.mark.parametrize(
    "setting",
    [
        "data.sources.²=1",
        f"data.sources.{'1' * 5000}=1",
        "resources.seconds_per_step=1e-308",
        f"training.tokens=1{'0' * 400}",
        f"model.layers=1{'0' * 400}",
        f"model.layers=1{'0' * 25}",
        f"model.layers=0x{'f' * 5000}",
        f"training.global_batch={'9' * 23} samples",
        "cluster.accounting.per_node_hour=1e305",
        f"resources.walltime={'9' * 5000}d",
        f"resources.walltime={'9' * 5000}-00",
        "resources.walltime=99999999d",
        f"cluster.node.memory={'9' * 5000}G",
        "cluster.node.memory=99999999999E",
        f"resources.nodes={10**20}",
        f"data.seed={2**70}",
        "data.sources=[{prefix: /a, weight: 1e300}]",
        r'name="\ud800"',
        r'environment={"A\ud800": x}',
        "cluster.signals.lead=20h",
    ],
)
def test_a_number_or_text_that_cannot_be_is_one_line(setting):
    refused(setting)


def test_a_batch_of_any_size_is_judged_at_once():
    assert "is not divisible" in refused("training.global_batch=1000000000000007 samples")


def test_the_signal_lead_time_ends_where_sbatchs_does():
    assert plan("cluster.signals.lead=65535s").directives["signal"] == "B:USR1@65535"
    assert "at most 65535 s (sbatch(1))" in refused("cluster.signals.lead=65536s")
