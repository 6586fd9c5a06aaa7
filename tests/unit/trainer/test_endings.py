"""How a training ends when it is asked, fenced, broken or alone."""

from __future__ import annotations

import os
import signal
import time

import pytest

from pretrainctl.records import codec
from pretrainctl.records.contract import ExitCode, Fence, Request, fence_file, request_file

LONG = 100_000


def contents(directory):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("rank", "number"), [(1, signal.SIGTERM), (0, signal.SIGUSR1)])
def test_a_signal_to_one_rank_saves_at_a_step_boundary(trainer, rank, number):
    trainer.settings |= {"total_steps": LONG}
    trainer.settings["checkpoint"]["every_steps"] = LONG
    restart = trainer.start()
    restart.wait_for_step(2)
    os.kill(restart.ranks[rank].pid, number)
    assert restart.wait() == [ExitCode.CHECKPOINTED] * 2, restart.log(0) + restart.log(1)
    end, last = restart.end, restart.metrics("step")[-1]["step"]
    assert (end.kind, end.reason, end.step) == ("checkpointed", "signal", last)
    assert trainer.tags() == [end.checkpoint] == [f"global_step{last}"]
    assert [line["tag"] for line in restart.metrics("saved")] == [end.checkpoint]


def test_requests_are_obeyed_once_and_only_by_their_attempt(trainer):
    trainer.settings |= {"total_steps": LONG}
    trainer.settings["checkpoint"]["every_steps"] = LONG
    requests = request_file(trainer.run_dir)
    codec.write(requests, Request("save_and_exit", 2, "another attempt's", 5, 0.0))
    restart = trainer.start(attempt=1)
    restart.wait_for_step(2)
    codec.write(requests, Request("save", 1, "save", 6, 0.0))
    saved = restart.wait_for(lambda line: line["kind"] == "saved")
    restart.wait_for_step(saved["step"] + 2)
    codec.write(requests, Request("save_and_exit", 1, "time_limit", 7, 0.0))
    assert restart.wait() == [ExitCode.CHECKPOINTED] * 2, restart.log(0)
    assert (restart.end.kind, restart.end.reason) == ("checkpointed", "time_limit")
    assert [line["tag"] for line in restart.metrics("saved")] == [saved["tag"], restart.end.checkpoint]


def test_a_fenced_training_saves_nothing(trainer):
    codec.write(fence_file(trainer.run_dir), Fence(2, 0))
    restart = trainer.start(attempt=1)
    assert restart.wait() == [ExitCode.FENCED] * 2, restart.log(0)
    assert (restart.end.kind, restart.end.step, restart.end.checkpoint) == ("fenced", 4, None)
    assert not trainer.checkpoints.exists()


@pytest.mark.parametrize("stage", [0, 3])
def test_divergence_leaves_the_last_checkpoint_alone(trainer, stage):
    trainer.settings |= {"zero_stage": stage, "total_steps": 6}
    trainer.settings["checkpoint"]["every_steps"] = 2
    trainer.settings["optimizer"] |= {"clip": 0.0}
    good = trainer.start()
    good.wait_for(lambda line: line["kind"] == "saved")
    good.stop()
    for tag in set(trainer.tags()) - {"global_step2"}:
        (trainer.checkpoints / tag).rename(trainer.run_dir / tag)
    before = contents(trainer.checkpoints / "global_step2")
    trainer.settings["optimizer"]["lr"] = 1e30
    restart = trainer.start(attempt=2, tag="global_step2")
    assert restart.wait() == [ExitCode.DIVERGED] * 2, restart.log(0)
    assert restart.end.kind == "diverged"
    assert "nan" in restart.end.reason or "inf" in restart.end.reason
    assert restart.end.step == 3  # a step with huge weights, and then none
    assert restart.metrics("saved") == []
    assert contents(trainer.checkpoints / "global_step2") == before
    assert trainer.tags() == ["global_step2"]


def test_a_dead_peer_ends_the_others_at_once(trainer):
    trainer.settings |= {"total_steps": LONG}
    restart = trainer.start()
    restart.wait_for_step(2)
    restart.ranks[1].kill()
    died = time.monotonic()
    assert restart.wait() == [ExitCode.FAILED, -signal.SIGKILL]
    assert time.monotonic() - died < 20
    assert not (restart.directory / "end.json").exists()
