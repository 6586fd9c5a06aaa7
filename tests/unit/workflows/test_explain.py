"""Each line of a script with its origin, and what differs between two clusters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.workflows.explain import Difference, diff, explain
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.training_step import training_step

MINE = ["cluster.account.name=ab12"]
RECIPES = [name for name in catalog.names("recipes") if name != "moe-8x7b"]


def origins(cluster, *set_values, recipe="llama-8b"):
    return {line.text.partition("=")[0]: line for line in explain(recipe, cluster, set_values=[*MINE, *set_values])}


def wrote(line):
    """The line of the file that an origin names."""
    path, number = re.search(r"(?:profile|recipe) (\S+):(\d+)", line.origin).groups()
    return (Path(__file__).parents[3] / path).read_text(encoding="utf-8").splitlines()[int(number) - 1]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("cluster", sorted(catalog.names("cluster_profiles")))
def test_every_line_that_does_something_has_an_origin(recipe, cluster):
    if cluster == "sandbox" and recipe != "quickstart":
        return
    set_values = [
        *(MINE if cluster != "sandbox" else []),
        *(["cluster.families=[ehpc]"] if cluster == "marenostrum5" else []),
        *(["cluster.container.image=/a.sif"] if cluster != "sandbox" else []),
    ]
    lines = explain(recipe, cluster, set_values=set_values)
    words = ("#SBATCH", "export", "type module", "module", "exec", "srun")
    does = [line for line in lines if line.text.startswith(words)]
    assert len(does) > 15
    assert [line.text for line in does if not line.origin] == []
    assert {line.origin for line in lines if line not in does} == {""}


def test_an_origin_is_the_line_that_was_written():
    found = origins("jupiter")
    assert wrote(found["#SBATCH --partition"]).strip() == "partition: booster"
    assert wrote(found["#SBATCH --cpus-per-task"]).startswith("  cpus_per_task: 72")
    assert wrote(found["#SBATCH --nodes"]).startswith("  jupiter: {resources: {nodes: 32")
    assert wrote(found["#SBATCH --signal"]).strip() == "lead: 10m"
    assert "NCCL_IB_HCA" in wrote(found["export NCCL_IB_HCA"]) or "value" in wrote(found["export NCCL_IB_HCA"])
    assert "OpenEuroLLM/oellm-autoexp" in found["export NCCL_IB_HCA"].origin
    assert wrote(found["module load GCC/14.3.0"]).startswith("modules: [Stages/2026")
    assert "first production row that fits" in found["#SBATCH --partition"].origin


def test_settings_variables_and_workloads_are_named(monkeypatch):
    found = origins(
        "jupiter",
        "resources.nodes=64",
        "environment={NCCL_DEBUG: INFO}",
        "workloads=[pipeline-parallel]",
        "cluster.request.options=[--constraint=gpu]",
        "resources.queue=booster",
    )
    assert found["#SBATCH --nodes"].origin == "recipe --set resources.nodes=64"
    assert found["#SBATCH --account"].origin == "profile --set cluster.account.name=ab12"
    assert found["export NCCL_DEBUG"].origin.startswith("recipe --set environment=")
    assert "megatron_moe_resilient_jupiter" in found["export NCCL_NET_GDR_LEVEL"].origin
    assert found["#SBATCH --constraint"].origin == "profile --set cluster.request.options=[--constraint=gpu]"
    assert found["#SBATCH --partition"].origin.endswith("; recipe --set resources.queue=booster")
    monkeypatch.setenv("PRETRAINCTL_ACCOUNT", "xy")
    lines = {line.text: line.origin for line in explain("llama-8b", "jupiter")}
    assert lines["#SBATCH --account=xy"] == "profile $PRETRAINCTL_ACCOUNT"


def test_an_overlay_of_ones_own_is_an_origin(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("extends: leonardo\naccount:\n  name: mine\nsignals: {lead: 20m}\n")
    lines = {line.text: line.origin for line in explain("llama-8b", str(own))}
    assert lines["#SBATCH --account=mine"] == f"profile {own}:3"
    assert lines["#SBATCH --signal=B:USR1@1200"] == f"profile {own}:4"
    assert "leonardo.yaml:" in lines["#SBATCH --mem=0"]


def test_the_srun_is_the_one_of_the_attempt_and_each_part_has_its_origin():
    found = origins("marenostrum5", "cluster.families=[ehpc]", "cluster.tasks.srun_options=[--cpu-bind=none, --wait=5]")
    settings = [*MINE, "cluster.families=[ehpc]", "cluster.tasks.srun_options=[--cpu-bind=none, --wait=5]"]
    lines = [line for line in explain("llama-8b", "marenostrum5", set_values=settings) if line.text[:5] == "srun "]
    plan = make_plan("llama-8b", "marenostrum5", set_values=settings)
    run_dir = Path("runs/llama-8b").absolute()
    nodes = [f"node{number:02d}" for number in range(1, 33)]
    launch = render_bundle(plan, run_dir)[0]
    assert [word for line in lines for word in line.text.split()[1:]] == list(
        training_step(launch, run_dir, nodes, attempt=1, restart=0)[1:]
    )
    assert [line.text.split()[1] for line in lines if not line.origin] == []
    assert wrote(found["srun --nodes"]).startswith("  marenostrum5: {resources: {nodes: 32")
    assert wrote(found["srun --cpus-per-task"]) == "  cpus_per_task: 20"
    waits = [line.origin for line in lines if line.text.startswith("srun --wait=")]
    assert waits[0].startswith("rule: ")
    assert waits[1].startswith("profile --set cluster.tasks.srun_options=")


def test_what_nobody_wrote_is_a_default_and_what_is_worked_out_is_computed():
    found = origins("jupiter")
    assert wrote(found["export WANDB_MODE"]).strip() == "wandb: offline"
    assert found["export WANDB_PROJECT"].origin == "default: tracking.project, which nobody wrote"
    assert found["export WANDB_NAME"].origin == "computed: the name of the run"
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        assert found[f"export WANDB_{name}"].origin == "computed: the run folder"
    named = origins("jupiter", "tracking.project=llm", "tracking.entity=us", "tracking.group=g")
    for name, key in (("PROJECT", "project=llm"), ("ENTITY", "entity=us"), ("RUN_GROUP", "group=g")):
        assert named[f"export WANDB_{name}"].origin == f"recipe --set tracking.{key}"


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("cluster", ["marenostrum5", "leonardo", "jupiter"])
def test_an_origin_with_a_line_names_a_value_that_stands_there(recipe, cluster):
    values = [*MINE, *(["cluster.families=[ehpc]"] if cluster == "marenostrum5" else [])]
    for line in explain(recipe, cluster, set_values=values):
        for path, number in re.findall(r"(?:profile|recipe) (\S+\.yaml):(\d+)", line.origin):
            there = (Path(__file__).parents[3] / path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
            # A section that is opened there, and nothing more, says no value.
            assert not re.fullmatch(r"[a-z_]+:\s*(#.*)?", there), line


def test_files_are_named_so_that_they_open_from_the_working_folder(tmp_path, monkeypatch):
    repository = Path(__file__).parents[3]
    monkeypatch.chdir(repository)
    found = origins("jupiter")
    assert found["#SBATCH --nodes"].origin.startswith("recipe recipes/llama-8b.yaml:")
    assert found["#SBATCH --time"].origin.startswith("recipe recipes/llama-8b.yaml:")
    assert found["srun --cpus-per-task"].origin.startswith("profile cluster_profiles/jupiter.yaml:")
    mine = tmp_path / "profiles" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text("extends: leonardo\naccount: {name: mine}\n")
    for folder, shown in ((tmp_path, "profiles/mine.yaml"), (mine.parent, "mine.yaml"), (repository, str(mine))):
        monkeypatch.chdir(folder)
        lines = explain("llama-8b", str(mine))
        assert {line.text: line.origin for line in lines}["#SBATCH --account=mine"] == f"profile {shown}:2"
        named = {path for line in lines for path in re.findall(r"(?:profile|recipe) (\S+\.ya?ml):\d+", line.origin)}
        assert len(named) == 3
        assert all(Path(path).is_file() for path in named)


def test_what_differs_between_two_clusters():
    found = {one.what: one for one in diff("llama-8b", "leonardo", "jupiter", set_values=MINE)}
    assert found["--partition"] == Difference("--partition", "boost_usr_prod", "booster")
    assert found["--exclusive"] == Difference("--exclusive", "given", "")
    assert found["--time"] == Difference("--time", "1-00:00:00", "0-12:00:00")
    assert found["modules"].first == "python/3.11.7"
    assert found["NCCL_NET_GDR_LEVEL"] == Difference("NCCL_NET_GDR_LEVEL", "", "2")
    assert found["srun --cpus-per-task"] == Difference("srun --cpus-per-task", "8", "72")
    assert "srun --nodes" not in found
    assert "--account" not in found
    assert "HF_HUB_OFFLINE" not in found
    assert diff("llama-8b", "jupiter", "jupiter", set_values=MINE) == []


def test_the_commands(monkeypatch, capsys):
    from pretrainctl.cli.main import main

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["pretrainctl", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code or 0, *capsys.readouterr()

    account = ("--set", "cluster.account.name=ab12")
    status, out, _ = call("explain", "llama-8b", "-c", "jupiter", *account)
    assert status == 0
    assert "#SBATCH --partition=booster" in out
    status, out, _ = call("diff", "llama-8b", "-c", "leonardo", "-c", "jupiter", *account, "--json")
    assert status == 0
    assert {"what": "--time", "first": "1-00:00:00", "second": "0-12:00:00"} in json.loads(out)
    status, out, _ = call("diff", "llama-8b", "-c", "leonardo", "-c", "jupiter", *account)
    assert out.splitlines()[0].split() == ["WHAT", "LEONARDO", "JUPITER"]
    status, _, err = call("diff", "llama-8b", "-c", "leonardo", *account)
    assert (status, err.splitlines()[0]) == (2, "error: --cluster was given 1 times, and two are compared")
