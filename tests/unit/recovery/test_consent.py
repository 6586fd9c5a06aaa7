"""Which changes alter the training."""

from __future__ import annotations

import pytest

from pretrainctl.records.lineage import Lineage
from pretrainctl.recovery.consent import compare, describe, join, open_changes


def change(key: str, before: str = "1", after: str = "2"):
    old, new = ({key: value} if value else {} for value in (before, after))
    (found,) = compare(Lineage(old), Lineage(new))
    return found


@pytest.mark.parametrize(
    "key",
    [
        *("training.optimizer.lr", "training.model.layers", "training.data.seed", "training.global_batch"),
        *("training.schedule.warmup_steps", "training.precision", "training.zero_stage", "training.total_steps"),
        *("training.a_key_of_tomorrow", "deepspeed.zero_optimization.stage", "deepspeed.optimizer.params.lr", "task"),
        *("launch.program", "launch.environment.MY_LR", "launch.checkpoint.world_size", "launch.tokens_per_step"),
        *("data./d/a.bin.size", "data./d/a.idx.digest", "code.tree./home/me/code", "code.file./home/me/train.py"),
        *("python.module.pretrainctl.trainer", "image.size"),
    ],
)
def test_this_alters_the_training(key: str) -> None:
    assert change(key).alters
    assert change(key, before="").alters
    assert change(key, after="").alters


@pytest.mark.parametrize(
    "key",
    [
        *("job.time", "job.account", "job.qos", "job.nodes", "launch.spares", "launch.chain", "launch.chained_jobs"),
        *("launch.recovery.restarts_per_attempt", "launch.python", "launch.environment.WANDB_MODE"),
        *("launch.environment.NCCL_DEBUG", "training.checkpoint.every_steps", "training.log_every"),
        *("code.pretrainctl", "code.commit./home/me/code", "data./d/a.bin.mtime", "image.mtime", "python.numpy", "job"),
    ],
)
def test_this_does_not(key: str) -> None:
    assert not change(key).alters


@pytest.mark.parametrize(
    ("before", "after", "alters"),
    [("2.3.0", "2.3.1", False), ("2.3.1+cu121", "2.3.1", False), ("2.3.1", "2.4.0", True), ("0.9.1", "1.9.1", True)],
)
def test_versions_count_by_major_and_minor(before: str, after: str, *, alters: bool) -> None:
    assert change("python.torch", before, after).alters is alters
    assert change("python.deepspeed", before, after).alters is alters


def test_what_is_not_known_is_no_change() -> None:
    known = Lineage({"data./d/a.bin.size": "1", "python.torch": "2.3.0", "task": "a"})
    away = Lineage({"task": "a"}, unknown={"data./d/a.bin": "Stale file handle", "python": "not known within 5 s"})
    assert compare(known, away) == []
    assert compare(away, known) == []
    assert [one.key for one in compare(known, Lineage({"task": "a"}))] == ["data./d/a.bin.size", "python.torch"]


def test_what_one_attempt_could_not_find_out_is_taken_from_those_before() -> None:
    first = Lineage({"python.torch": "2.3.0", "training.a": "1", "training.b": "1"})
    second = Lineage({"training.a": "2"}, unknown={"python": "away"})
    assert join([first, second]) == Lineage({"python.torch": "2.3.0", "training.a": "2"})
    assert join([second]).unknown == {"python": "away"}


def test_consent_is_for_one_value() -> None:
    changes = compare(Lineage({"training.optimizer.lr": "1", "job.time": "1"}), Lineage({"training.optimizer.lr": "2"}))
    assert [one.key for one in changes] == ["training.optimizer.lr", "job.time"], "what matters comes first"
    assert open_changes(changes, {("training.optimizer.lr", "2")}) == []
    assert [one.key for one in open_changes(changes, {("training.optimizer.lr", "3")})] == ["training.optimizer.lr"]


def test_changes_in_one_line() -> None:
    changes = compare(Lineage({"task": "a", "training.x": "1"}), Lineage({"training.x": "2"}))
    assert describe(changes) == "task a -> (none); training.x 1 -> 2"
    many = compare(Lineage({}), Lineage({f"training.{number:02}": "1" for number in range(20)}))
    assert describe(many).endswith("training.07 (none) -> 1; and 12 more")
