"""What the READMEs of recipes and profiles show is real: commands work, files load, the program trains."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time

import pytest

from pretrainctl import catalog
from pretrainctl.cli.main import app
from pretrainctl.errors import InputError
from pretrainctl.frameworks.checkpoint_gate import gate
from pretrainctl.records import codec
from pretrainctl.records.contract import End, ExitCode, Request, request_file, restart_dir
from pretrainctl.sandbox import Shape
from pretrainctl.sandbox.configuration import accounting_commands
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle, write_bundle
from tests.house.conftest import TOP

RECIPES = (TOP / "recipes" / "README.md").read_text(encoding="utf-8")
PROFILES = (TOP / "cluster_profiles" / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (pretrainctl .*)$", RECIPES + PROFILES, re.MULTILINE)


def fenced(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def own_program(folder):
    """The README's own program and its recipe, as files."""
    (program,) = fenced(RECIPES, "python")
    (folder / "own.py").write_text(program, encoding="utf-8")
    (recipe,) = (text for text in fenced(RECIPES, "yaml") if "program:" in text)
    (folder / "own.yaml").write_text(recipe.replace("/home/you", str(folder)), encoding="utf-8")
    return str(folder / "own.yaml")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readmes_works(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app(shlex.split(command)[1:], standalone_mode=False)


def test_the_recipes_of_the_readme_can_be_planned(tmp_path):
    for number, text in enumerate(fenced(RECIPES, "yaml")):
        (tmp_path / f"{number}.yaml").write_text(text, encoding="utf-8")
        plan = make_plan(str(tmp_path / f"{number}.yaml"), "sandbox", directory=tmp_path)
        assert render_bundle(plan, tmp_path / "run")[2].files["task.sh"]


@pytest.fixture
def saved_profiles(user_configuration):
    """The README's profiles, under the names that it tells; their texts by name."""
    texts = dict(
        zip(re.findall(r"`\S*?([\w-]+)\.yaml`[^`]*\n?[^`]*`--cluster", PROFILES), fenced(PROFILES, "yaml"), strict=True)
    )
    (user_configuration / "cluster_profiles").mkdir()
    for name, text in texts.items():
        (user_configuration / "cluster_profiles" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return texts


def test_the_profile_of_the_readme_extends_the_shipped_one(saved_profiles):
    assert list(saved_profiles) == ["my-sandbox", "mycluster"]
    plan = make_plan("quickstart", "my-sandbox")
    assert (plan.profile.name, plan.queue.name, plan.profile.signals.lead) == ("my-sandbox", "mine", 120)
    assert plan.profile.environment["NCCL_DEBUG"].value == "WARN"


@pytest.mark.parametrize("cluster", ["sandbox", "my-sandbox"])
def test_the_profiles_of_the_readme_leave_the_tour_as_it_is(saved_profiles, cluster):
    """What the tour submits is what the sandbox's Slurm takes: its account, and as many nodes as it has."""
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    launch = re.search(
        r"^\$ pretrainctl launch (\S+) --cluster sandbox --name first --set (\S+)$", readme, re.MULTILINE
    )
    plan = make_plan(launch[1], cluster, set_values=[launch[2]])
    assert int(plan.directives["nodes"]) == 3
    assert plan.queue.max_nodes is None or plan.queue.max_nodes >= Shape().nodes
    known = [command[2] for command in accounting_commands("sandbox", user="ann") if command[:2] == ["add", "account"]]
    assert plan.directives.get("account", known[0]) in known


def test_the_whole_profile_of_the_readme_plans_what_is_shipped(saved_profiles, tmp_path):
    assert "extends" not in saved_profiles["mycluster"]
    plan = make_plan("llama-1b", "mycluster", directory=tmp_path)
    assert (plan.queue.name, plan.directives["partition"], plan.directives["gres"]) == ("gpu", "gpu", "gpu:4")
    assert render_bundle(plan, tmp_path / "run")[2].files["job.sbatch"]


def test_a_short_profile_is_told_of_the_whole_one(saved_profiles, user_configuration):
    path = user_configuration / "cluster_profiles" / "mycluster.yaml"
    for least in yaml_without_each_key(saved_profiles["mycluster"]):
        path.write_text(least, encoding="utf-8")
        with pytest.raises(InputError, match="is missing"):
            catalog.load_profile("mycluster")
    path.write_text("name: mycluster\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"the keys provenance, queues, account, .* are missing") as caught:
        catalog.load_profile("mycluster")
    assert "extends: NAME" in caught.value.hint
    assert "cluster_profiles/README.md" in caught.value.hint


def yaml_without_each_key(text):
    """A profile less each of its keys at the top in turn: the README shows none that could be left out."""
    parts = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    for left_out in parts:
        yield "".join(part for part in parts if part is not left_out)


class OwnRun:
    """A run folder of the README's program; `start` stands in for the srun of an attempt, with two ranks."""

    def __init__(self, folder):
        recipe = own_program(folder)
        self.folder = folder / "run"
        plan = make_plan(recipe, "sandbox", set_values=["training.tokens=81920"], directory=folder)
        self.launch, settings, bundle = render_bundle(plan, self.folder, python=sys.executable)
        assert settings is None
        write_bundle(bundle, self.folder / "bundle")
        (self.folder / "control").mkdir()

    def start(self, attempt, tag):
        restart_dir(self.folder, attempt, 0).mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(2):
            variables = {
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": "0",
                "SLURM_NTASKS": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "PRETRAINCTL_RUN_DIR": str(self.folder),
                "PRETRAINCTL_ATTEMPT": str(attempt),
                "PRETRAINCTL_RESTART": "0",
                "PRETRAINCTL_RESUME_TAG": tag or "",
                "PYTHONPATH": str(TOP),
            }
            with (self.folder / f"{attempt}-{rank}.log").open("wb") as log:
                yield subprocess.Popen(
                    ["bash", str(self.folder / "bundle" / "task.sh")],
                    cwd=self.folder,
                    env={**os.environ, **self.launch.environment, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    def run(self, attempt, tag):
        """Exit statuses of the two ranks, and the end record."""
        tasks = list(self.start(attempt, tag))
        try:
            statuses = [task.wait(timeout=240) for task in tasks]
        finally:
            for task in tasks:
                task.kill()
        logs = [self.folder / f"{attempt}-{rank}.log" for rank in range(2)]
        self.said = "\n".join(log.read_text(encoding="utf-8", errors="replace")[-5000:] for log in logs)
        end = codec.read_if_whole(End, restart_dir(self.folder, attempt, 0) / "end.json")
        assert end is not None, self.said
        return statuses, end

    def gate(self, expected):
        directory = self.launch.checkpoint.directory
        return gate(directory, self.launch.checkpoint, expected=expected, last_saved_step=None, label="test")


@pytest.mark.skipif(shutil.which("g++") is None, reason="DeepSpeed compiles its CPU extension, and g++ is not here")
def test_the_program_of_the_readme_saves_as_asked_passes_the_gate_and_resumes_to_the_target(tmp_path):
    run = OwnRun(tmp_path)
    assert run.gate(expected=False).resume_tag is None
    codec.write(request_file(run.folder), Request("save_and_exit", 1, "stop", 1, time.time()))
    statuses, end = run.run(1, None)
    assert statuses == [ExitCode.CHECKPOINTED] * 2, run.said
    assert (end.kind, end.reason) == ("checkpointed", "stop")
    assert 0 < end.step < 40
    found = run.gate(expected=True)
    assert (found.resume_tag, found.quarantined) == (end.checkpoint, ())
    statuses, last = run.run(2, found.resume_tag)
    assert (statuses, last.kind, last.step, last.tokens) == ([0, 0], "reached", 40, 81920), run.said
    assert run.gate(expected=True).resume_tag == "global_step40"
    lines = (restart_dir(run.folder, 2, 0) / "metrics.jsonl").read_text().splitlines()
    steps = [line["step"] for line in map(json.loads, lines) if "loss" in line]
    assert steps == list(range(end.step + 1, 41))
