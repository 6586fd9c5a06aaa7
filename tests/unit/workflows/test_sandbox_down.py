"""Commands where the sandbox is down and its folder is kept, and where a shell speaks to it."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pretrainctl.errors import InputError, MissingError, SlurmError
from pretrainctl.records import codec
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.folder import RunFolder
from pretrainctl.runs.state import fold
from pretrainctl.sandbox import Sandbox, Shape, daemons, machine
from pretrainctl.sandbox.layout import Settings, save
from pretrainctl.sandbox.processes import Process
from pretrainctl.workflows import control, lint, nodes, place, reach
from pretrainctl.workflows.check_cluster import check_cluster
from pretrainctl.workflows.explain import explain
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.reconcile import reconcile
from pretrainctl.workflows.status import survey

CLUSTER = "sandbox_00c0ffee"


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """One that was up before; whoever starts a program of Slurm fails the test."""
    monkeypatch.setenv("PRETRAINCTL_SANDBOX", str(tmp_path / "sandbox"))
    monkeypatch.setenv("PRETRAINCTL_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    made = Sandbox()
    made.layout.make()
    settings = Settings(Shape(), 1, 2, 3, CLUSTER)
    save(made.layout, settings)
    daemons.write_configuration(made.layout, settings)

    def started(argv: object, **_: object) -> None:
        pytest.fail(f"started {argv}")

    monkeypatch.setattr("pretrainctl.process.run", started)
    monkeypatch.setattr("pretrainctl.slurm.client.Slurm._run", lambda _self, argv, *_: started(argv))
    return made


@pytest.fixture
def run(tmp_path: Path, sandbox: Sandbox) -> Path:
    """A run of that sandbox, whose job had begun."""
    folder = tmp_path / "runs" / "a"
    (folder / "control").mkdir(parents=True)
    conf = str(sandbox.layout.slurm_conf)
    record = RunRecord(
        *("a", "a-1", "a-1", "sandbox", 0.0, getpass.getuser(), {"name": "a"}, {}, {}),
        slurm_conf=conf,
        slurm_cluster=CLUSTER,
    )
    codec.write(folder / "run.json", record)
    ledger.append(folder, "submitted", "submitted job 1", data={"job_id": 1})
    return folder


@pytest.mark.parametrize("command", [control.resume, control.save, reconcile])
def test_what_needs_slurm_says_at_once_that_the_sandbox_is_down(
    run: Path, sandbox: Sandbox, command: Callable[[str], object]
) -> None:
    before = ledger.read_events(run)
    with pytest.raises(MissingError, match=f"the sandbox in {sandbox.root} is not up") as caught:
        command(str(run))
    assert "pretrainctl sandbox up" in caught.value.hint
    assert caught.value.exit_code == 3
    assert ledger.read_events(run) == before


@pytest.mark.parametrize(("command", "cancelled"), [(control.stop, False), (control.cancel, True)])
def test_a_stop_is_recorded_while_the_sandbox_is_down(
    run: Path, command: Callable[[str], object], *, cancelled: bool
) -> None:
    with pytest.raises(SlurmError, match=r"the stop of .* is recorded, .* is not up"):
        command(str(run))
    state = fold(ledger.read_events(run))
    assert state.stopped is not None
    assert state.cancelled is cancelled


def test_status_and_a_look_at_all_runs_show_what_there_is(run: Path, pytestconfig: pytest.Config) -> None:
    (run / "bundle").mkdir()
    launch = pytestconfig.rootpath / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    shutil.copy(launch, run / "bundle" / "launch.json")
    found = survey(str(run))
    assert (found.runs[0].name, found.runs[0].phase) == ("a", "unknown")
    assert "is not up" in found.problems[0]
    looked = reconcile()
    assert (looked.unknown, looked.over) == (1, 0)
    assert "is not up" in looked.problems[0]


def test_a_sandbox_without_its_controller_is_not_down(
    run: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage, which is waited for as on any site."""
    munged = Process(1, 1, 1, "S", "munged", f"munged@{sandbox.root}", None, None)
    monkeypatch.setattr(machine.Sandbox, "_members", lambda _: {munged})
    assert reach.reach(RunFolder(run))


def test_the_configuration_of_another_slurm_is_no_sandbox(run: Path, tmp_path: Path) -> None:
    conf = tmp_path / "slurm" / "etc" / "slurm.conf"
    conf.parent.mkdir(parents=True)
    conf.touch()
    codec.write(run / "run.json", replace(RunFolder(run).record, slurm_conf=str(conf)))
    assert reach.reach(RunFolder(run))


def test_the_list_of_nodes_is_read_and_forgiven_while_the_sandbox_is_down(run: Path, sandbox: Sandbox) -> None:
    nodes_of = nodes.survey("sandbox")
    assert (nodes_of.slurm_cluster, nodes_of.nodes) == (CLUSTER, ())
    found = nodes._entry(nodes._open("sandbox")[0], "node02", "exclude", "noisy", 1e9)
    nodes.add_found(nodes._open("sandbox")[0], found)
    assert "node02: 1 finding" in nodes.report(["node02"], "sandbox")
    told = nodes.forgive(["node02"], "sandbox", reason="")
    assert told.message == f"jobs on the Slurm cluster {CLUSTER} may go to node02 again"
    assert told.notes == (f"jobs that wait were not told: the sandbox in {sandbox.root} is not up",)
    with pytest.raises(MissingError, match="is not up"):
        nodes.exclude(["node02"], "sandbox", reason="x", seconds=60)


def test_a_profile_is_compared_with_no_other_slurm(sandbox: Sandbox) -> None:
    with pytest.raises(MissingError, match=f"the sandbox in {sandbox.root} is not up"):
        check_cluster("sandbox")


def test_without_a_sandbox_its_list_has_no_name(sandbox: Sandbox) -> None:
    sandbox.layout.settings.unlink()
    with pytest.raises(MissingError, match="is not up"):
        nodes.survey("sandbox")


def test_a_shell_of_the_sandbox_means_the_sandbox(
    run: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert place.find_cluster() is None
    with pytest.raises(InputError, match="no cluster profile knows this host") as caught:
        nodes.survey(None)
    assert "say --cluster" in caught.value.hint
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert place.find_cluster() is None, "another Slurm's"
    for name, value in sandbox.env().items():
        monkeypatch.setenv(name, value)
    assert nodes.survey(None).slurm_cluster == CLUSTER
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n")
    assert lint.lint_scripts([script], None)[0].cluster == "sandbox"
    assert make_plan("quickstart", None).profile.name == "sandbox"
    assert explain("quickstart", None)


def test_a_profile_that_knows_the_host_comes_first(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, user_configuration: Path
) -> None:
    (user_configuration / "cluster_profiles").mkdir()
    (user_configuration / "cluster_profiles" / "big.yaml").write_text("extends: sandbox\nhosts: {login: ['big1']}\n")
    monkeypatch.setattr("socket.getfqdn", lambda: "big1")
    monkeypatch.setenv("SLURM_CONF", sandbox.env()["SLURM_CONF"])
    assert place.find_cluster() == "big"
