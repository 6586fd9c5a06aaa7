"""The claim: one number an attempt, and the lowest attempt whose job is alive owns the run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pretrainctl.errors import SlurmError
from pretrainctl.records import codec
from pretrainctl.records.run import AttemptRecord
from pretrainctl.runs import ledger
from pretrainctl.runs.claim import claim, rival


def record(job_id: int, slurm_restart: int = 0) -> AttemptRecord:
    return AttemptRecord(0, job_id, slurm_restart, "node01", 1, ("node01",), 0.0)


def read_all(run_dir: Path) -> list[AttemptRecord]:
    return [codec.read(AttemptRecord, path) for path in sorted(run_dir.glob("attempts/[0-9]*/attempt.json"))]


def test_claims_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda job: claim(tmp_path, record(job)), range(100, 120)))
    assert sorted(mine.attempt for mine in got) == list(range(1, 21))
    assert {mine.attempt: mine.job_id for mine in read_all(tmp_path)} == {m.attempt: m.job_id for m in got}
    assert not [path for path in (tmp_path / "attempts").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("running", "ended", "owner"),
    [({11, 12}, (), 1), ({12}, (), 2), (set(), (), None), ({11, 12}, (1,), 2), ({11, 12}, (1, 2), None)],
)
def test_the_lowest_attempt_that_lives_is_the_rival(
    tmp_path: Path, running: set[int], ended: tuple[int, ...], owner: int | None
) -> None:
    (tmp_path / "attempts").mkdir()
    for job in (11, 12):
        claim(tmp_path, record(job))
    mine = claim(tmp_path, record(13))
    for attempt in ended:
        ledger.append(tmp_path, "attempt_ended", "over", attempt=attempt)
    found = rival(read_all(tmp_path), mine, tmp_path, lambda jobs: running & set(jobs))
    assert (found.attempt if found else None) == owner


def test_an_earlier_start_of_the_same_job_is_no_rival(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    claim(tmp_path, record(11))
    mine = claim(tmp_path, record(11, slurm_restart=1))
    assert rival(read_all(tmp_path), mine, tmp_path, set) is None


def test_what_cannot_be_known_is_not_taken_for_dead(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    claim(tmp_path, record(11))
    mine = claim(tmp_path, record(12))

    def unreachable(_jobs: list[int]) -> set[int]:
        raise SlurmError("unable to contact slurm controller")

    with pytest.raises(SlurmError):
        rival(read_all(tmp_path), mine, tmp_path, unreachable)
