from __future__ import annotations

import pytest

from pretrainctl.records.job import JobClass
from pretrainctl.slurm.states import STATES, ending_signal, read_exit, read_state

OWNER = 31001


@pytest.mark.parametrize(
    ("text", "job_class", "alive"),
    [
        ("COMPLETED", JobClass.FINISHED, False),
        ("OUT_OF_ME+", JobClass.HOST_OOM, False),
        ("CANCELLED+", JobClass.CANCELLED, False),
        (f"CANCELLED by {OWNER}", JobClass.USER_CANCEL, False),
        ("CANCELLED by 0", JobClass.ADMIN_CANCEL, False),
        ("NODE_FAIL", JobClass.NODE_FAILURE, False),
        ("PREEMPTED", JobClass.PREEMPTED, False),
        ("TIMEOUT", JobClass.TIME_LIMIT, False),
        ("FAILED", JobClass.FAILED, False),
        ("BOOT_FAIL", JobClass.BOOT_FAILURE, False),
        ("DEADLINE", JobClass.DEADLINE, False),
        ("REQUEUED", JobClass.REQUEUED, None),
        ("RESIZING", JobClass.RUNNING, True),
        ("REVOKED", JobClass.ELSEWHERE, None),
        ("COMPLETING", JobClass.ENDING, True),
        ("SPECIAL_EXIT", JobClass.HELD, True),
        ("LAUNCH_FAILED", JobClass.LAUNCH_FAILURE, None),
        ("SOMETHING_NEW", JobClass.UNKNOWN, None),
        ("RECONFIG_FAIL", JobClass.LAUNCH_FAILURE, None),
        ("", JobClass.UNKNOWN, None),
    ],
)
def test_states_as_printed(text, job_class, alive):
    meaning = read_state(text, OWNER)
    assert (meaning.job_class, meaning.alive, meaning.text) == (job_class, alive, text)


def test_a_cut_state_with_two_meanings_is_unknown():
    assert read_state("RE+", OWNER).job_class is JobClass.UNKNOWN
    assert read_state("COMPLET+", OWNER).alive is None


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_read_as_what_the_table_says(state):
    meaning = read_state(state.lower())
    assert (meaning.job_class, meaning.alive) == STATES[state]


@pytest.mark.parametrize(
    ("text", "owner", "job_class", "uid"),
    [
        ("CANCELLED by 0", 0, JobClass.USER_CANCEL, 0),
        ("CANCELLED by 5", OWNER, JobClass.ADMIN_CANCEL, 5),
        ("CANCELLED by 5", None, JobClass.CANCELLED, 5),
        ("CANCELLED", OWNER, JobClass.CANCELLED, None),
    ],
)
def test_who_cancelled(text, owner, job_class, uid):
    meaning = read_state(text, owner)
    assert (meaning.job_class, meaning.cancelled_by, meaning.alive) == (job_class, uid, False)


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("0:0", None),
        ("0:125", None),  # Slurm's mark for out of memory
        ("0:15", 15),
        ("0:9", 9),
        ("0:1", 1),
        ("1:0", None),
        ("137:0", 9),
        ("143:0", 15),
        ("255:0", None),
        ("", None),
    ],
)
def test_exit_codes_name_the_signal(text, signal):
    assert ending_signal(*read_exit(text)) == signal


def test_an_exit_code_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="invalid literal"):
        read_exit("one:two")
