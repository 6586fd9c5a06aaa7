"""What a start needs is looked for before anything is queued."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.errors import InputError
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle
from pretrainctl.workflows.training_program import refuse_missing_program

LEONARDO = ["cluster.account.name=EUHPC_E01_001"]


def judge(tmp_path: Path, argv: list[str] | None, cluster: str = "sandbox", sets: tuple[str, ...] = ()) -> None:
    program = {"argv": argv, "checkpoint": {"directory": "{run_dir}/ck"}}
    own = [f"program={json.dumps(program)}"] if argv is not None else []
    site = LEONARDO if cluster == "leonardo" else []
    plan = make_plan("quickstart", cluster, set_values=[*own, *site, *sets], name="a", directory=tmp_path)
    run_dir = tmp_path / "runs" / "a"
    profile: dict[str, Any] = plan.profile.model_dump(mode="json")
    refuse_missing_program(render_bundle(plan, run_dir)[0], run_dir, profile)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.py").write_text("")
    (tmp_path / "run.sh").write_text("#!/bin/bash\n")
    (tmp_path / "run.sh").chmod(0o755)
    return tmp_path


MISSING = [
    (["{python}", "DIR/nosuch.py"], "program.argv.1: DIR/nosuch.py does not exist"),
    (
        ["{python}", "-u", "-Xdev", "-W", "error", "DIR/nosuch.py", "--x"],
        "program.argv.5: DIR/nosuch.py does not exist",
    ),
    (["DIR/nosuch/python3", "DIR/there.py"], "program.argv.0: DIR/nosuch/python3 does not exist"),
    (["DIR/there.py"], "program.argv.0: DIR/there.py is not executable"),
    (["DIR", "x"], "program.argv.0: DIR is a folder, not a program"),
    (["DIR/there.py/x"], "program.argv.0: DIR/there.py/x does not exist"),
    (["{python}", "there.py"], "program.argv.1: DIR/runs/a/there.py does not exist"),
    (["./run.sh"], "program.argv.0: DIR/runs/a/run.sh does not exist"),
    (["bash", "-e", "-o", "pipefail", "DIR/nosuch.sh"], "program.argv.4: DIR/nosuch.sh does not exist"),
    (
        ["{python}", "-m", "torch.distributed.run", "--nproc=2", "DIR/nosuch.py"],
        "program.argv.4: DIR/nosuch.py does not",
    ),
    (["env", "A=b", "python3", "DIR/nosuch.py"], "program.argv.3: DIR/nosuch.py does not exist"),
    (["{python}", "~/own.py"], "program.argv.1: '~/own.py' is taken as it is written"),
    (["$HOME/bin/own", "x"], "program.argv.0: '$HOME/bin/own' is taken as it is written"),
]


@pytest.mark.parametrize(("argv", "said"), MISSING)
def test_what_is_surely_missing_is_refused(scripts: Path, argv: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        judge(scripts, [word.replace("DIR", str(scripts)) for word in argv])
    assert said.replace("DIR", str(scripts)) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "argv",
    [
        ["{python}", "DIR/there.py", "--config", "DIR/nosuch.yaml"],
        ["DIR/run.sh", "DIR/nosuch.bin"],
        ["{python}", "-m", "own", "--out", "DIR/nosuch.py"],
        ["{python}", "-c", "print(1)", "x"],
        ["{python}", "-um", "own"],
        ["bash", "-c", "exec $HOME/x"],
        ["bash", "-lc", "own"],
        ["own-trainer", "x"],
        ["{python}", "DIR/{tag}/own.py"],
        ["{python}", "-"],
        ["{python}", "{run_dir}/../../there.py"],
    ],
)
def test_what_is_there_or_cannot_be_known_passes(scripts: Path, argv: list[str]) -> None:
    (scripts / "runs" / "a").mkdir(parents=True)
    judge(scripts, [word.replace("DIR", str(scripts)) for word in argv])


@pytest.mark.parametrize("where", ["/tmp/x", "/usr/x", "/scratch/local/x", "/scratch_local/x", "/nvme0/x", "/job/me/x"])
def test_what_only_nodes_may_have_is_refused_on_one_machine_only(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/job/me")
    judge(tmp_path, [f"{where}/nosuch.py"], "leonardo")
    with pytest.raises(InputError, match="does not exist"):
        judge(tmp_path, [f"{where}/nosuch.py"])
    with pytest.raises(InputError, match=r"/leonardo_work/x/nosuch\.py does not exist"):
        judge(tmp_path, ["/leonardo_work/x/nosuch.py"], "leonardo")


def test_storage_that_lasts_as_long_as_a_job_is_left_alone(tmp_path: Path) -> None:
    tiers = "cluster.storage=[{name: fast, path: /fast/*, lasts: job}, {name: home, path: /homes/*, lasts: permanent}]"
    judge(tmp_path, ["/fast/me/nosuch.py"], "leonardo", (tiers,))
    with pytest.raises(InputError, match="does not exist"):
        judge(tmp_path, ["/homes/me/nosuch.py"], "leonardo", (tiers,))


def test_an_image_must_be_there_and_what_lies_in_it_is_left_alone(scripts: Path) -> None:
    def image(name: str) -> tuple[str, ...]:
        return (f"cluster.container={{binary: singularity, image: {scripts / name}}}",)

    judge(scripts, ["python3", "/srv/nosuch.py"], sets=image("there.py"))
    with pytest.raises(InputError, match=r"cluster\.container\.image: .*/nosuch\.sif does not exist"):
        judge(scripts, ["python3", "/srv/nosuch.py"], sets=image("nosuch.sif"))


def test_the_interpreters_of_a_profile_must_be_there(tmp_path: Path) -> None:
    judge(tmp_path, None, sets=(f"cluster.python.training={sys.executable}",))
    for which in ("control", "training"):
        with pytest.raises(InputError, match=rf"cluster\.python\.{which}: /srv/nosuch/python does not exist"):
            judge(tmp_path, None, sets=(f"cluster.python.{which}=/srv/nosuch/python",))
