"""Plan -> launch for DeepSpeed: what the attempt and the trainer are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pretrainctl.frameworks import deepspeed
from pretrainctl.frameworks.contract import RunIdentity
from pretrainctl.records import codec
from pretrainctl.records.launch import Launch
from pretrainctl.records.training import DataSource, TrainingSettings
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle, write_bundle

RUN = Path("/runs/a b")
IDENTITY = RunIdentity(RUN, "a-b-12345678", "/opt/control/python", "/opt/training/python")


def launched(*set_values):
    plan = make_plan("quickstart", "sandbox", set_values=set_values, directory=Path("/home/you"))
    return deepspeed.launch(plan, IDENTITY)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_records_can_be_read_back(stage, precision):
    record, settings, config = launched(f"training.zero_stage={stage}", f"training.precision={precision}")
    assert codec.from_json(Launch, json.loads(json.dumps(codec.to_json(record)))) == record
    assert codec.from_json(TrainingSettings, json.loads(json.dumps(codec.to_json(settings)))) == settings
    assert config["zero_optimization"]["stage"] == settings.zero_stage == record.checkpoint.zero_stage == stage
    assert config["bf16"] == {"enabled": precision == "bf16"}


def test_the_batch_triple_is_what_deepspeed_checks():
    record, settings, config = launched("training.global_batch=32 samples", "resources.tasks_per_node=2")
    assert (
        config["train_batch_size"]
        == config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 4
        == settings.global_batch
    )
    assert record.srun.world_size == record.checkpoint.world_size == 4
    assert record.tokens_per_step == 32 * 256


def test_clipping_is_always_said_because_its_default_changed():
    assert launched("training.optimizer.clip=0")[2]["gradient_clipping"] == 0
    assert launched()[2]["gradient_clipping"] == 1.0


def test_the_reference_trainer_is_told_where_everything_is():
    record, settings, _ = launched("data.sources=[{prefix: d, weight: 2}, {prefix: /e}]")
    assert record.program == ("/opt/training/python", "-m", "pretrainctl.trainer", f"{RUN}/bundle/training.json")
    assert record.python == "/opt/control/python"
    assert settings.deepspeed_config == RUN / "bundle/deepspeed.json"
    assert settings.checkpoint.directory == record.checkpoint.directory == RUN / "checkpoints"
    assert settings.data.sources == (DataSource(Path("/home/you/d"), 2.0), DataSource(Path("/e"), 1.0))
    assert record.target_steps == settings.total_steps == 160


def test_a_program_of_ones_own_needs_no_settings_and_braces_stay():
    argv = ["{python}", "train.py", '{"a": {"b": 1}}', "{run_dir}/x", "{checkpoint_dir}", "{tag}"]
    program = {"argv": argv, "checkpoint": {"directory": "{run_dir}/out"}, "resume_arguments": ["{tag}"]}
    record, settings, _ = launched(f"program={json.dumps(program)}")
    assert settings is None
    assert record.program == (
        "/opt/training/python",
        "train.py",
        '{"a": {"b": 1}}',
        f"{RUN}/x",
        f"{RUN}/out",
        "{tag}",
    )
    assert record.resume_arguments == ("{tag}",)
    assert record.checkpoint.directory == RUN / "out"


def test_the_environment_holds_one_tracker_id_for_all_attempts():
    environment = launched()[0].environment
    assert environment["WANDB_RUN_ID"] == IDENTITY.run_id
    assert environment["WANDB_RESUME"] == "allow"
    assert environment["WANDB_MODE"] == "disabled"
    assert "WANDB_DIR" not in environment


def test_wandb_writes_into_the_run_folder_only():
    environment = launched("tracking={wandb: offline, project: p, entity: e, group: g}")[0].environment
    folders = [value for name, value in environment.items() if name.startswith("WANDB_") and name.endswith("DIR")]
    assert len(folders) == 4
    assert all(folder.startswith(str(RUN)) for folder in folders)
    assert environment["WANDB_MODE"] == "offline"
    assert (environment["WANDB_PROJECT"], environment["WANDB_ENTITY"], environment["WANDB_RUN_GROUP"]) == (
        "p",
        "e",
        "g",
    )


def test_the_recipes_variables_win_over_the_profiles_and_both_over_ours():
    environment = launched(
        "cluster.environment={OMP_NUM_THREADS: {value: '4', reason: x}, A: {value: '1', reason: x}}",
        "environment={A: '2'}",
    )[0].environment
    assert (environment["OMP_NUM_THREADS"], environment["A"]) == ("4", "2")


def test_cpus_only_where_no_gpu_is_asked_for():
    assert launched()[0].environment["DS_ACCELERATOR"] == "cpu"
    record, settings, _ = launched("resources.gpus_per_node=all")
    assert "DS_ACCELERATOR" not in record.environment
    assert settings.threads == 0


def test_chain_inside_queues_nothing_at_launch_and_prequeued_the_rest():
    inside = launched()[0]
    assert (inside.chain, inside.chained_jobs, inside.tops_up) == ("inside", 1, False)
    assert launched("chain.jobs=4")[0].chained_jobs == 3
    few = "cluster.queues=[{name: a, purpose: production, max_nodes: 2, max_walltime: 1h, max_jobs: 2}]"
    assert launched("chain.jobs=4", few)[0].chained_jobs == 1, "the queue takes no more"
    prequeued = launched("cluster.chain={strategy: prequeued, jobs: 4}")[0]
    assert (prequeued.chain, prequeued.chained_jobs) == ("prequeued", 3)
    own = launched("chain={strategy: prequeued, jobs: 2}")[0]
    assert (own.chain, own.chained_jobs) == ("prequeued", 1)


def test_rules_of_profile_and_recipe_reach_the_attempt():
    record = launched(
        "cluster.rendezvous={address: hostname, suffix: -ib0, port_base: 20000, port_span: 100}",
        "cluster.liveness={interval: 2, silent_after: 20, closed_after: 3}",
        "cluster.tasks.srun_options=[--cpu-bind=none]",
        "recovery={restarts_per_attempt: 1, attempts_without_progress: 2}",
        "resources.spares=1",
        "cluster.signals.lead=1m",
    )[0]
    assert (record.address.kind, record.address.suffix, record.address.port_base) == ("hostname", "-ib0", 20000)
    assert (record.liveness.interval, record.liveness.silent_after) == (2.0, 20.0)
    assert record.srun.options == ("--cpu-bind=none",)
    assert (record.recovery.restarts_per_attempt, record.recovery.attempts_without_progress) == (1, 2)
    assert (record.spares, record.srun.nodes, record.signal_lead) == (1, 2, 60)


READ = """
import sys, json
from pathlib import Path
from pretrainctl.trainer.startup import prepare
prepare()
from pretrainctl.records import codec
from pretrainctl.records.training import TrainingSettings
from pretrainctl.trainer.engine import configuration
for bundle in sys.argv[1:]:
    settings = codec.read(TrainingSettings, Path(bundle) / "training.json")
    print(json.dumps(configuration(settings, 2)))
"""


def test_the_trainer_takes_what_is_rendered_for_it_and_completes_nothing(tmp_path):
    written, folders = [], []
    for stage in range(4):
        for precision in ("fp32", "bf16"):
            run_dir = tmp_path / f"{stage}-{precision}"
            changes = [f"training.zero_stage={stage}", f"training.precision={precision}"]
            plan = make_plan("quickstart", "sandbox", set_values=changes, directory=tmp_path)
            bundle = render_bundle(plan, run_dir)[2]
            write_bundle(bundle, run_dir / "bundle")
            written.append(json.loads(bundle.files["deepspeed.json"]))
            folders.append(str(run_dir / "bundle"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, *folders], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    taken = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert taken == written
