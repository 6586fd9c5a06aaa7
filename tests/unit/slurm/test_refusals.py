from __future__ import annotations

import pytest

from pretrainctl.slurm.refusals import REFUSALS, RefusalClass, Retry, read_refusal

FAILED = "sbatch: error: Batch job submission failed: "
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("text", "refusal_class", "retry"),
    [
        (
            f"{FAILED}Invalid account or account/partition combination specified",
            RefusalClass.ACCOUNT,
            Retry.NO,
        ),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", RefusalClass.OWN_LIMIT, Retry.LATER),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", RefusalClass.OWN_LIMIT, Retry.LATER),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", RefusalClass.TIME_LIMIT, Retry.NO),
        (f"sbatch: error: QOSMaxNodePerJobLimit\n{POLICY}", RefusalClass.TOO_LARGE, Retry.NO),
        (POLICY, RefusalClass.POLICY, Retry.NO),
        (f"{FAILED}Requested node configuration is not available", RefusalClass.IMPOSSIBLE, Retry.NO),
        ("sbatch: error: CPU count per node can not be satisfied", RefusalClass.IMPOSSIBLE, Retry.NO),
        ("allocation failure: Requested node configuration is not available", RefusalClass.IMPOSSIBLE, Retry.NO),
        (
            f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)",
            RefusalClass.TIME_LIMIT,
            Retry.NO,
        ),
        (f"{FAILED}Socket timed out on send/recv operation", RefusalClass.BUSY, Retry.BACK_OFF),
        (f"{FAILED}Unable to contact slurm controller (connect failure)", RefusalClass.BUSY, Retry.BACK_OFF),
        (
            "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
            RefusalClass.BUSY,
            Retry.BACK_OFF,
        ),
        (
            "sbatch: error: batch job submission failed: requested reservation is invalid",
            RefusalClass.RESERVATION,
            Retry.NO,
        ),
        (
            """sbatch: error: This is a GPU cluster, only GPU jobs with --gres=gpu:N are accepted
            sbatch: error: cli_filter plugin terminated with error""",
            RefusalClass.SITE_FILTER,
            Retry.NO,
        ),
        (
            f"sbatch: error: invalid partition specified: bosst\n{FAILED}Invalid partition name specified",
            RefusalClass.PARTITION,
            Retry.NO,
        ),
        (f"{FAILED}Invalid generic resource (gres) specification", RefusalClass.IMPOSSIBLE, Retry.NO),
        ("sbatch: error: Unable to open file job.sbatch", RefusalClass.SCRIPT, Retry.NO),
        (f"{FAILED}Invalid qos specification", RefusalClass.ACCOUNT, Retry.NO),
        (f"{FAILED}Access/permission denied", RefusalClass.ACCOUNT, Retry.NO),
        (f"{FAILED}Job dependency problem", RefusalClass.DEPENDENCY, Retry.NO),
        ("sbatch: error: the moon is in the wrong house", RefusalClass.UNKNOWN, Retry.NO),
        ("", RefusalClass.UNKNOWN, Retry.NO),
    ],
)
def test_what_a_refusal_means(text, refusal_class, retry):
    refusal = read_refusal(text)
    assert (refusal.refusal_class, refusal.retry) == (refusal_class, retry)
    assert read_refusal(text.upper()) is refusal


def test_each_refusal_has_a_hint_for_people():
    assert all(refusal.hint for refusal in REFUSALS)
