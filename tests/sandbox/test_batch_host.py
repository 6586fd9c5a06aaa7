"""The batch host dies: another node ends the job, and the chained job goes on in seconds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from pretrainctl.records import codec, contract
from pretrainctl.records.contract import Fence
from pretrainctl.runs.folder import RunFolder
from pretrainctl.sandbox import Sandbox, outages, processes
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

STEPS = 400


def launch(site: Site, name: str, *sets: str, steps: int = STEPS) -> tuple[TrainingRun, str]:
    """A run that is well past a save, and its batch host."""
    run = site.launch(name, steps=steps, sets=["checkpoint.every_steps=10", *sets])
    run.wait_for_step(23)
    return run, run.events("claimed")[0].message.split()[-1]


@pytest.mark.parametrize("silent", [False, True], ids=["killed", "silent"])
def test_without_a_spare_the_chained_job_starts_at_once_and_elsewhere(
    site: Site, sandbox: Sandbox, silent: bool
) -> None:
    run, host = launch(site, f"host-{'silent' if silent else 'killed'}", steps=10 * STEPS)
    begun = time.monotonic()
    sandbox.kill_node(host, silent=silent)
    wait_until(lambda: len(run.events("restart_started")) == 2, 60, "the next start", run=run)
    took = time.monotonic() - begun
    lost = run.events("batch_host_lost")
    assert [event.data["node"] for event in lost] == [host]
    assert took < 25, f"{took:.1f} s; {run.story()}"
    (looked,) = run.events("looked_back")
    assert looked.data["class"] == "node_failure", looked.message
    assert host not in run.events("restart_started")[1].data["nodes"]
    done = site.command("doctor", run.name, "--attempt", "1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["class"], told["nodes"]) == ("node_failure", [host])
    run.wait_for_step(STEPS // 2)
    run.assert_goes_on(2, every=10)
    assert run.status()["phase"] == "running"
    assert site.command("cancel", run.name).returncode == 0


def test_a_host_that_comes_back_takes_nothing_from_the_attempt_that_trains(site: Site, sandbox: Sandbox) -> None:
    run, host = launch(site, "host-back", "chain.jobs=3", steps=100 * STEPS)
    owner = RunFolder(run.folder).attempts()[0]
    where = sandbox.layout
    frozen = processes.freeze(
        lambda: processes.members(processes.scan(), root=where.root, slurm_conf=where.slurm_conf, names=[host])
    )
    wait_until(lambda: any(sample["attempt"] == 2 for sample in run.samples()), 90, "attempt 2 to train", run=run)
    # What Slurm has on that host still stands, so nothing ends the attempt and its sruns but themselves.
    for one in frozen:
        if one.pid == owner.pid or Path(f"/proc/{one.pid}/comm").read_text() == "srun\n":
            processes.send(one, signal.SIGCONT)
    end = wait_until(lambda: [event for event in run.events("attempt_ended") if event.attempt == 1], 90, "its end")[0]
    assert (end.data["class"], end.message) == ("fenced", "attempt 2 has the run")
    assert codec.read(Fence, contract.fence_file(run.folder)).attempt == 2
    assert not run.events("stopped")
    assert not any(event.data["quarantined"] for event in run.events("checkpoint_gate"))
    assert [event.attempt for event in run.events("restart_started")] == [1, 2]
    waiting = site.slurm("squeue", "-h", "-o", "%A", "--states=PENDING").split()
    assert len(waiting) == 2, "those that wait for attempt 2 to end are there"
    step = run.step()
    run.wait_for_step(step + 30)
    for one in frozen:
        processes.send(one, signal.SIGCONT)
    assert site.command("cancel", run.name).returncode == 0


def test_a_host_that_is_shut_down_and_cannot_tell_slurm_of_the_end_holds_no_job(site: Site, sandbox: Sandbox) -> None:
    run, host = launch(site, "host-shut-down", steps=10 * STEPS)
    outages.shut_down(sandbox, host)
    wait_until(lambda: len(run.events("restart_started")) == 2, 90, "the next start", run=run)
    ended, lost = run.events("attempt_ended")[0], run.events("batch_host_lost")
    assert ended.attempt == 1, "it wrote its end, and nobody told Slurm"
    assert [event.data["node"] for event in lost] == [host]
    assert lost[0].time > ended.time
    assert run.events("looked_back")[0].data["class"] == "node_failure"
    assert host not in run.events("restart_started")[1].data["nodes"]
    assert site.command("cancel", run.name).returncode == 0


def test_ranks_that_left_a_host_which_is_back_start_again_in_the_same_job(site: Site, sandbox: Sandbox) -> None:
    run, host = launch(site, "host-blip", "resources.spares=1", "checkpoint.every_steps=1000", steps=5000)
    where, request = sandbox.layout, contract.request_file(run.folder)
    frozen = processes.freeze(
        lambda: processes.members(processes.scan(), root=where.root, slurm_conf=where.slurm_conf, names=[host])
    )
    wait_until(request.exists, 40, "the ranks to be asked to save", run=run)
    for one in frozen:
        processes.send(one, signal.SIGCONT)
    wait_until(lambda: len(run.events("restart_started")) == 2, 60, "the next start", run=run)
    assert [event.attempt for event in run.events("restart_started")] == [1, 1], run.story()
    saved = run.samples("saved")[0]["step"]
    run.wait_for_step(saved + 20)
    assert run.first_step_of(1, 1) == saved + 1
    assert not run.events("batch_host_lost")
    assert not run.events("node_listed")
    assert site.command("cancel", run.name).returncode == 0


def test_with_a_spare_the_ranks_save_before_the_job_is_ended(site: Site, sandbox: Sandbox) -> None:
    run, host = launch(site, "host-spare", "resources.spares=1", "checkpoint.every_steps=1000", steps=2000)
    assert host not in run.events("restart_started")[0].data["nodes"]
    sandbox.kill_node(host)
    wait_until(lambda: len(run.events("restart_started")) == 2, 90, "the next start", run=run)
    run.wait_for_step(run.step() + 3)
    saved = run.samples("saved")[0]["step"]
    assert saved == max(sample["step"] for sample in run.samples() if sample["attempt"] == 1), "no step is done twice"
    assert run.first_step_of(2) == saved + 1
    assert site.command("cancel", run.name).returncode == 0


def test_a_user_who_cancels_is_obeyed_and_no_witness_speaks(site: Site) -> None:
    run, _ = launch(site, "host-well")
    (job,) = (event.data["job_id"] for event in run.events("submitted"))
    site.slurm("scancel", str(job))
    assert run.wait_for("stopped").data["class"] == "user_cancel"
    run.wait_for_an_empty_queue()
    assert not run.events("batch_host_lost")


def lookouts() -> list[int]:
    """Pids of all processes that look out for a batch host."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if b"pretrainctl.liveness.lookout" in (path / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found


def test_reconcile_ends_a_job_whose_batch_host_is_gone(site: Site, sandbox: Sandbox) -> None:
    # Nobody on the other node looks out: Slurm gives the dead one up, and the job stays.
    run, host = launch(site, "host-unseen")
    for pid in lookouts():
        os.kill(pid, signal.SIGSTOP)
    sandbox.kill_node(host)
    status = wait_until(
        lambda: (s := json.loads(site.command("status", run.name, "--json").stdout))["warnings"] and s, 90, "a warning"
    )
    # Slurm's daemon alone may have died: what is heard is left alone, and here that was a moment ago.
    assert "is heard all the same" in status["warnings"][0]
    assert "is heard all the same" in site.command("reconcile", run.name).stdout
    os.utime(run.folder / "attempts" / "0001" / "alive", (0.0, 0.0))
    shown = json.loads(site.command("status", run.name, "--json").stdout)
    assert "has lost its batch host" in shown["warnings"][0]
    done = site.command("reconcile", run.name)
    assert f"its batch host {host} is gone" in done.stdout, done.stdout + done.stderr
    wait_until(lambda: len(run.events("restart_started")) == 2, 90, "the next start", run=run)
    assert site.command("cancel", run.name).returncode == 0
