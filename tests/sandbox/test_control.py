"""What people do to a run, and that it is respected."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pretrainctl.runs.folder import RunFolder
from pretrainctl.sandbox import Sandbox
from pretrainctl.workflows.exclusions import list_of
from tests.sandbox.training_runs import Site, TrainingRun, wait_until

pytestmark = pytest.mark.usefixtures("sandbox")


def launch(site: Site, name: str, *sets: str, steps: int = 3000) -> TrainingRun:
    return site.launch(name, steps=steps, sets=["checkpoint.every_steps=10", *sets])


def assert_nothing_goes_on(run: TrainingRun, seconds: float = 6.0) -> None:
    """Nothing queued, nothing running, no new attempt, for a while, whatever `reconcile` is asked to do."""
    run.wait_for_an_empty_queue()
    attempts, step = run.status()["attempts"], run.step()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done = run.site.command("reconcile", run.name)
        assert done.returncode == 0, done.stderr
        assert not run.jobs()
        assert (run.status()["attempts"], run.step()) == (attempts, step)
        time.sleep(1.0)


def test_a_users_scancel_is_a_stop_until_resume(site: Site) -> None:
    run = launch(site, "scancelled")
    run.wait_for_step(12)
    (first,) = (event.data["job_id"] for event in run.events("submitted"))
    site.slurm("scancel", str(first))
    assert run.wait_for("stopped").data["class"] == "user_cancel"
    assert_nothing_goes_on(run)
    stopped_at = run.step()
    assert run.status()["phase"] == "stopped"
    for words, said in (((), "the user cancelled the job"), (("--attempt", "2"), "no training was started")):
        found = json.loads(site.command("doctor", run.name, *words, "--json").stdout)
        assert (found["class"], found["action"]) == ("user_cancel", "stop")
        assert said in found["message"]
    assert site.command("resume", run.name).returncode == 0
    run.wait_for_step(stopped_at + 3)
    assert site.command("cancel", run.name).returncode == 0


def test_stop_saves_and_ends_and_nothing_goes_on_until_resume(site: Site) -> None:
    run = launch(site, "stopped")
    run.wait_for_step(12)
    done = site.command("stop", "--save", run.name, "--json")
    assert done.returncode == 0, done.stderr
    assert run.wait_for("attempt_ended").data == {"action": "stop", "class": "stopped"}
    assert_nothing_goes_on(run)
    last = run.step()
    assert run.samples("saved")[-1]["step"] == last, "the save is at the very step where the run ended"
    assert site.command("resume", run.name).returncode == 0
    run.wait_for_step(last + 1)
    assert run.first_step_of(run.samples()[-1]["attempt"]) == last + 1
    assert site.command("cancel", run.name).returncode == 0
    assert_nothing_goes_on(run, 2.0)


def test_a_stop_whose_request_cannot_be_written_reaches_the_ranks_by_a_signal(site: Site) -> None:
    run = launch(site, "unwritable", steps=5000)
    run.wait_for_step(12)
    (run.folder / "control" / "request.json").mkdir()
    done = site.command("stop", "--save", run.name)
    assert done.returncode == 0, done.stderr
    assert "the request cannot be written" in done.stdout
    assert run.wait_for("attempt_ended", 60).data == {"action": "stop", "class": "stopped"}
    assert "by a signal" in run.events("save_asked")[0].message
    assert run.samples("saved")[-1]["step"] == run.step()
    assert_nothing_goes_on(run, 2.0)


def test_a_checkpoint_directory_has_one_run_and_another_may_go_on_from_it_when_that_is_over(site: Site) -> None:
    where = f"checkpoint.directory={site.folder / 'shared'}"
    first = launch(site, "first", where, steps=15)
    words = ("launch", "quickstart", "--cluster", "sandbox", "--yes", "--set", where)
    done = site.command(*words, "--name", "second")
    assert done.returncode == 8
    assert f"belong to another run: {first.folder}" in done.stderr
    assert not (site.folder / "runs" / "second").exists()
    first.wait_for_finish()
    done = site.command("resume", first.name)
    assert done.returncode == 6
    assert "checkpoint.adopt=true" in done.stderr
    further = launch(site, "further", where, "checkpoint.adopt=true", steps=20)
    further.wait_for_finish()
    assert further.first_step_of(1) == 16


def test_srun_that_returns_0_after_a_node_failure_is_not_success(site: Site, sandbox: Sandbox) -> None:
    # --no-kill on srun makes it return 0 after a node failure; --kill-on-bad-exit=0 lets it get that far.
    run = launch(site, "no-kill", "resources.spares=1", "cluster.tasks.srun_options=[--no-kill]", steps=80)
    run.wait_for_step(13)
    sandbox.kill_node(run.events("restart_started")[0].data["nodes"][-1])
    run.wait_for_finish()
    classes = [event.data["class"] for event in run.events("restart_ended")]
    assert classes == ["node_failure", "finished"]
    assert run.step() == 80


def test_a_second_job_of_a_running_run_leaves(site: Site) -> None:
    run = launch(site, "two-jobs")
    run.wait_for_step(3)
    second = site.slurm("sbatch", "--parsable", "--job-name=by-hand", str(run.folder / "bundle" / "job.sbatch")).strip()
    refused = run.wait_for("refused")
    assert "attempt 1 owns the run" in refused.message
    wait_until(lambda: f"{second}|COMPLETED" in site.slurm("sacct", "-nXP", "-o", "jobid,state"), 30, "it to leave")
    step = run.step()
    run.wait_for_step(step + 3)
    assert {sample["attempt"] for sample in run.samples()} == {1}
    assert site.command("cancel", run.name).returncode == 0


def test_status_tells_why_a_job_waits(site: Site) -> None:
    filler = site.slurm("sbatch", "--parsable", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 90")
    run = launch(site, "waits")
    status = wait_until(lambda: (s := run.status())["reason"] in {"Resources", "Priority"} and s, 60, "a reason")
    assert (status["phase"], status["job_state"], status["attempts"]) == ("queued", "PENDING", 0)
    site.slurm("scancel", filler.strip())
    run.wait_for("claimed", 60)
    assert {entry["name"] for entry in json.loads(site.command("status", "--json").stdout)} >= {"waits"}
    assert site.command("cancel", run.name).returncode == 0


def test_a_loss_that_is_not_a_number_stops_the_run(site: Site) -> None:
    run = launch(site, "diverges", "training.optimizer.lr=1e30", "training.optimizer.clip=0", steps=60)
    stopped = run.wait_for("stopped")
    assert stopped.data["class"] == "divergence"
    assert_nothing_goes_on(run, 2.0)
    assert run.status()["phase"] == "failed"


def test_a_night_is_not_lost_to_an_empty_event_and_a_list_of_nonsense(site: Site, sandbox: Sandbox) -> None:
    run = launch(site, "empty-event", steps=60)
    run.wait_for_step(13)
    host = run.events("claimed")[0].message.split()[-1]
    victim = next(node for node in run.events("restart_started")[0].data["nodes"] if node != host)
    event = run.folder / "attempts" / "0001" / "events" / "000002.json"
    event.write_text("")
    listed = list_of(RunFolder(run.folder)).path
    listed.mkdir(parents=True, exist_ok=True)
    nonsense = [listed / "nested.json", listed / "pipe.json"]
    nonsense[0].write_text("[" * 200_000)
    os.mkfifo(nonsense[1])
    sandbox.kill_node(victim)
    wait_until(event.with_name("000002.json.unreadable").exists, 90, "the attempt to set it aside")
    run.wait_for_finish()
    assert "000002.json.unreadable" in run.events("set_aside")[0].message
    assert "2 files of the node exclusion list cannot be used" in run.events("chained")[-1].message
    for path in nonsense:
        path.unlink()
    run.assert_goes_on(2, every=10)


def test_reconcile_brings_back_a_run_that_nobody_continues(site: Site, sandbox: Sandbox) -> None:
    run = launch(site, "orphan", "chain.strategy=prequeued", "chain.jobs=1", steps=60)
    run.wait_for_step(13)
    host = run.events("claimed")[0].message.split()[-1]
    sandbox.kill_node(next(node for node in run.events("restart_started")[0].data["nodes"] if node != host))
    assert run.wait_for("attempt_ended").data["action"] == "hand_over"
    wait_until(lambda: run.status()["phase"] == "no_job", 60, "the run to be without a job")
    with ThreadPoolExecutor(4) as pool:
        said = [done.stdout for done in pool.map(lambda _: site.command("reconcile", run.name), range(4))]
    assert sum(": queued job" in one for one in said) == 1, said
    assert site.command("reconcile", run.name).returncode == 0
    assert len(run.events("submitted")) == 2
    run.wait_for_finish()
    run.assert_goes_on(2, every=10)


def test_reconcile_tops_up_a_pre_queued_chain(site: Site) -> None:
    run = launch(site, "topped-up", "chain.strategy=prequeued", "chain.jobs=3")
    run.wait_for_step(3)
    jobs = run.jobs()
    assert len(jobs) == 3
    site.slurm("scancel", str(max(jobs)))
    wait_until(lambda: len(run.jobs()) == 2, 30, "the job to leave the queue")
    assert site.command("reconcile", run.name).returncode == 0
    assert len(run.jobs()) == 3
    assert site.command("cancel", run.name).returncode == 0


def test_a_queue_that_allows_one_submitted_job_is_a_note_and_no_failure(site: Site) -> None:
    queue = "{name: one, purpose: production, max_nodes: 2, max_walltime: 30m, partition: production, qos: debug}"
    run = launch(site, "one-job", f"cluster.queues=[{queue}]", "resources.walltime=00:10:00", steps=20)
    run.wait_for_finish()
    assert "no chained job" in run.wait_for("chain_refused", 1).message
    assert not run.events("chained")


def test_a_job_cancelled_before_it_began_is_a_stop_for_reconcile_too(site: Site) -> None:
    filler = site.slurm("sbatch", "--parsable", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 60")
    run = launch(site, "never-began")
    site.slurm("scancel", *map(str, run.jobs()))
    run.wait_for_an_empty_queue()
    assert site.command("reconcile", run.name).returncode == 0
    assert run.status()["phase"] == "stopped"
    assert_nothing_goes_on(run, 2.0)
    site.slurm("scancel", filler.strip())


def test_one_of_several_resumes_at_once_queues_the_job(site: Site) -> None:
    run = launch(site, "resumed-by-all")
    run.wait_for_step(12)
    assert site.command("cancel", run.name).returncode == 0
    run.wait_for_an_empty_queue()
    assert "is stopped already" in site.command("stop", "--save", run.name).stdout
    assert len(run.events("stop_requested")) == 0
    before = len(run.events("submitted"))
    with ThreadPoolExecutor(4) as pool:
        codes = sorted(done.returncode for done in pool.map(lambda _: site.command("resume", run.name), range(4)))
    assert codes == [0, 6, 6, 6]
    assert len(run.events("submitted")) == before + 1
    wait_until(lambda: run.status()["phase"] == "running", 60, "the resumed job", run=run)
    refused = site.command("resume", run.name)
    assert refused.returncode == 6
    assert "is running" in refused.stderr
    assert site.command("cancel", run.name).returncode == 0


def test_a_run_folder_that_was_moved_is_refused(site: Site) -> None:
    run = launch(site, "moves")
    assert site.command("cancel", run.name).returncode == 0
    run.wait_for_an_empty_queue()
    run.folder.rename(run.folder.with_name("moved"))
    done = site.command("resume", "moved")
    assert done.returncode == 6, done.stderr
    assert "was launched as" in done.stderr


def test_a_node_that_is_silent_before_the_start_is_left_out_and_the_others_are_watched(
    site: Site, sandbox: Sandbox
) -> None:
    sandbox.kill_node("node02", silent=True)
    run = launch(site, "silent-before", "resources.spares=1", steps=400)
    run.wait_for_step(13, 120)
    nodes = run.events("restart_started")[0].data["nodes"]
    assert "node02" not in nodes
    host = run.events("claimed")[0].message.split()[-1]
    sandbox.kill_node(next(node for node in nodes if node != host))
    assert run.wait_for("restart_ended", 60).data["class"] == "node_failure"
    assert site.command("cancel", run.name).returncode == 0
