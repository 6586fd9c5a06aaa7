"""The rendered batch script as the real sbatch reads it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pretrainctl import process
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle, write_bundle

STUB = """#!/bin/sh
{ pwd; printf '%s\\n' "$@"; echo "$SLURM_JOB_NAME $SLURM_JOB_NUM_NODES $OMP_NUM_THREADS"; } >proof.aside
mv proof.aside proof
"""


@pytest.mark.parametrize("name", ["plain", "my run 'x' \"y\" $HOME `id` #1 100% %j & ; é☃"])
def test_folder_output_and_arguments_arrive_whatever_the_run_is_called(sandbox, tmp_path, name):
    stub = tmp_path / "the interpreter"
    stub.write_text(STUB)
    stub.chmod(0o755)
    run_dir = tmp_path / name
    (run_dir / "attempts").mkdir(parents=True)
    plan = make_plan("quickstart", "sandbox", name=name, directory=tmp_path)
    launch, _, bundle = render_bundle(plan, run_dir, python=str(stub))
    write_bundle(bundle, run_dir / "bundle")
    job = process.run(
        ["sbatch", "--parsable", str(run_dir / "bundle" / "job.sbatch")],
        timeout=30,
        env=sandbox.environment(),
        cwd=Path("/"),
    ).stdout.strip()
    proof = run_dir / "proof"
    end = time.monotonic() + 30
    while not proof.exists():
        assert time.monotonic() < end, "the job did not run within 30 s"
        time.sleep(0.1)
    assert proof.read_text().splitlines() == [
        str(run_dir),
        "-m",
        "pretrainctl",
        "attempt",
        str(run_dir),
        f"{launch.job_name} 2 1",
    ]
    assert (run_dir / "attempts" / f"slurm-{job}.out").exists()
