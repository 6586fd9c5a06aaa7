"""The rendered text: parses, is clean, and holds hostile values as nothing but values."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pretrainctl.errors import InputError
from pretrainctl.rendering import render
from pretrainctl.schema.base import VariableText
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.render import render_bundle, write_bundle

SCRIPTS = ("job.sbatch", "task.sh")
HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(
        [
            "$(touch canary)",
            "`touch canary`",
            "'; touch canary; '",
            '"; touch canary; "',
            "a\ntouch canary\n#",
            "\r\ntouch canary",
            "\\'; touch canary #",
            "{{ 7 * 7 }}",
            "{% raw %}",
            "${IFS}",
            "~",
            "*",
            "-rf",
            "!!",
            "naïve ☃ 日本",
            "\u2028touch canary",
            "a\\",
        ]
    ),
)
ONE_LINE = HOSTILE.map(lambda text: "".join(c for c in text if c.isprintable())).filter(bool)
FILE_NAME = ONE_LINE.map(lambda text: text.replace("/", "_").replace("\\", "_")).filter(
    lambda text: text not in {".", ".."} and len(text.encode()) < 200
)
RUN_NAME = FILE_NAME.map(lambda name: f"a{name}")
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def directive_value(line: str) -> str:
    """What sbatch 22.05 makes of the value on a line (seen): a space outside quotes ends it, even an escaped one."""
    text, quote, escaped, value = line.partition("=")[2], "", False, ""
    for character in text:
        if not quote and character.isspace():
            break
        if escaped:
            value, escaped = value + character, False
        elif character == "\\":
            escaped = True
        elif quote:
            value, quote = (value, "") if character == quote else (value + character, quote)
        elif character in "\"'":
            quote = character
        elif character == "#":
            break
        else:
            value += character
    return value


def is_written_out(text: str) -> bool:
    """Whether the value of a variable names no other: that is refused."""
    try:
        TypeAdapter(VariableText).validate_python(text)
    except ValidationError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(
    name=RUN_NAME,
    description=HOSTILE,
    argument=HOSTILE,
    value=HOSTILE.filter(is_written_out),
    project=ONE_LINE,
    reason=ONE_LINE,
    module=ONE_LINE,
    folder=FILE_NAME.filter(lambda name: "$" not in name),  # which is refused
    data=FILE_NAME.filter(lambda name: "$" not in name and not name.startswith("~")),  # a home folder is somebody's
)
def test_hostile_values_are_values_and_nothing_of_them_runs(
    name, description, argument, value, project, reason, module, folder, data
):
    with tempfile.TemporaryDirectory() as top:
        base = Path(top)
        run_dir = base / folder
        # Stands for the interpreter and for `module`: says what it was given.
        stub = base / f"stub {data}"
        stub.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c '{SHOW}' \"$@\"\n")
        stub.chmod(0o755)
        given_program = {"argv": [str(stub), argument], "checkpoint": {"directory": "{run_dir}/" + data}}
        plan = make_plan(
            "quickstart",
            "sandbox",
            name=name,
            set_values=[
                f"description={json.dumps(description)}",
                f"environment={json.dumps({'HOSTILE': value})}",
                f"tracking={json.dumps({'wandb': 'offline', 'project': project, 'entity': project})}",
                f"program={json.dumps(given_program)}",
                f"data.sources={json.dumps([{'prefix': data}])}",
                f"cluster.environment={json.dumps({'NCCL_X': {'value': value, 'reason': reason}})}",
                f"cluster.modules={json.dumps([module])}",
            ],
            directory=base,
        )
        launch, _, bundle = render_bundle(plan, run_dir, python=str(stub))
        write_bundle(bundle, run_dir / "bundle")
        for script in SCRIPTS:
            subprocess.run(["bash", "-n", run_dir / "bundle" / script], check=True, timeout=30)
        modules = 'module() { [ "$1" = purge ] || printf "%s" "$2" >module; }; export -f module; exec bash "$0"'
        said = _run(["bash", "-c", modules, str(run_dir / "bundle" / "job.sbatch")], base)
        assert said[0] == ["-m", "pretrainctl", "attempt", str(run_dir)]
        assert said[1]["HOSTILE"] == said[1]["NCCL_X"] == value
        assert said[1]["WANDB_NAME"] == name
        assert said[1]["WANDB_PROJECT"] == project
        assert (base / "module").read_text() == module
        assert all(said[1][key] == text for key, text in launch.environment.items())
        assert _run(["bash", str(run_dir / "bundle" / "task.sh")], base)[0] == [argument]
        assert not list(base.rglob("canary*"))
        lines = bundle.files["job.sbatch"].split("\n")
        directives = {line.split("=")[0].split()[1]: line for line in lines if line.startswith("#SBATCH ")}
        assert directive_value(directives["--chdir"]) == str(run_dir)
        assert directive_value(directives["--output"]).replace("%%", "%") == f"{run_dir}/attempts/slurm-%j.out"
        assert len(directives) == len(plan.directives) + 3
        assert json.loads(bundle.files["launch.json"])["environment"]["HOSTILE"] == value


def _run(argv, folder):
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "PRETRAINCTL_ATTEMPT", "PRETRAINCTL_RESTART"), "0"),
        "SLURM_NTASKS": "1",
        "PRETRAINCTL_RUN_DIR": str(folder),
    }
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, check=True, timeout=30, stdin=subprocess.DEVNULL
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("bad", ["a\nb", "a\tb", "a\\b", "a\x7fb"])
def test_a_folder_that_no_directive_can_name_is_refused(bad, tmp_path):
    plan = make_plan("quickstart", "sandbox", directory=tmp_path)
    with pytest.raises(InputError, match="#SBATCH"):
        render_bundle(plan, tmp_path / bad)


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path):
    plan = make_plan("quickstart", "sandbox", directory=tmp_path / "a\udcffb")
    with pytest.raises(InputError, match=r"training\.json would hold a name that is no valid text"):
        render_bundle(plan, tmp_path)


def test_an_undefined_name_in_a_template_is_an_error(tmp_path):
    plan = make_plan("quickstart", "sandbox", directory=tmp_path)
    launch, settings_, _ = render_bundle(plan, tmp_path)
    for name in SCRIPTS:
        (tmp_path / f"{name}.j2").write_text("{{ plan.no_such_name }}")
    with pytest.raises(Exception, match="no_such_name"):
        render(plan, launch, settings_, {}, tmp_path, tmp_path)


def test_scripts_are_clean_for_shellcheck(tmp_path):
    found = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert found, "shellcheck belongs to the extra `dev`"
    settings_ = [
        "environment={X: 'a b'}",
        "cluster.modules=[gcc/12, cuda]",
        "program={argv: [a, 'b c'], checkpoint: {directory: x}, resume_arguments: ['{tag}']}",
    ]
    for number, set_values in enumerate(([], settings_)):
        plan = make_plan("quickstart", "sandbox", set_values=set_values, directory=tmp_path)
        paths = write_bundle(render_bundle(plan, tmp_path / "run")[2], tmp_path / str(number))
        scripts = [path for path in paths if path.name in SCRIPTS]
        done = subprocess.run([found, "--norc", *scripts], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout


def test_modules_come_before_the_environment_and_only_where_the_profile_names_some(tmp_path):
    plain = render_bundle(make_plan("quickstart", "sandbox", directory=tmp_path), tmp_path)[2].files["job.sbatch"]
    assert "\nmodule " not in plain
    plan = make_plan("quickstart", "sandbox", set_values=["cluster.modules=[gcc/12, cuda]"], directory=tmp_path)
    text = render_bundle(plan, tmp_path)[2].files["job.sbatch"]
    places = [text.index(part) for part in ("module purge", "module load gcc/12", "module load cuda", "export ")]
    assert places == sorted(places)


@pytest.mark.parametrize("inherited", [True, False])
def test_modules_are_there_in_a_job_from_cron_too(tmp_path, inherited):
    said = tmp_path / "said"
    interpreter, profile = tmp_path / "python", tmp_path / "profile"
    interpreter.write_text(f"#!/bin/sh\necho attempt >>{said}\n")
    interpreter.chmod(0o755)
    # A profile that `set -e` would end at, as many do.
    profile.write_text(f'false\necho profile >>{said}\nmodule() {{ echo "from the profile: $*" >>{said}; }}\n')
    plan = make_plan("quickstart", "sandbox", set_values=["cluster.modules=[gcc/12]"], directory=tmp_path)
    text = render_bundle(plan, tmp_path, python=str(interpreter))[2].files["job.sbatch"]
    assert text.count("/etc/profile") == 1
    (tmp_path / "job.sbatch").write_text(text.replace("/etc/profile", str(profile)))
    own = f'module() {{ echo "from the shell: $*" >>{said}; }}; export -f module; ' if inherited else ""
    subprocess.run(
        ["bash", "-c", f"{own}exec bash job.sbatch"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
        timeout=30,
    )
    whose = "from the shell" if inherited else "from the profile"
    lines = [f"{whose}: purge", f"{whose}: load gcc/12", "attempt"]
    assert said.read_text().splitlines() == ([] if inherited else ["profile"]) + lines


def test_without_modules_no_profile_is_read(tmp_path):
    plan = make_plan("quickstart", "sandbox", directory=tmp_path)
    assert "profile" not in render_bundle(plan, tmp_path / "run")[2].files["job.sbatch"].replace(str(tmp_path), "")


def test_directives_carry_what_a_run_that_goes_on_needs(tmp_path):
    set_values = [
        "resources.spares=1",
        "resources.gpus_per_node=all",
        "cluster.account={required: true, name: proj01}",
        "cluster.request={gpus: gres, exclusive: true, memory: '0'}",
        "cluster.request.options=['--constraint=a100', --hint=nomultithread]",
        "cluster.mail={type: 'END,FAIL', user: me@example.org}",
        "cluster.queues=[{name: x, partition: p, qos: q, purpose: production, max_nodes: 4, max_walltime: 1h}]",
        "cluster.signals.lead=2m",
    ]
    plan = make_plan("quickstart", "sandbox", set_values=set_values, directory=tmp_path)
    launch, _, bundle = render_bundle(plan, tmp_path / "run")
    directives = [
        line.removeprefix("#SBATCH ") for line in bundle.files["job.sbatch"].splitlines() if "#SBATCH" in line
    ]
    assert directives == [
        f"--job-name={launch.job_name}",
        "--partition=p",
        "--qos=q",
        "--account=proj01",
        "--nodes=3",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        "--gres=gpu:4",
        "--mem=0",
        "--exclusive",
        "--time=0-00:20:00",
        "--signal=B:USR1@120",
        "--no-requeue",
        "--no-kill",
        "--open-mode=append",
        "--mail-type=END,FAIL",
        "--mail-user=me@example.org",
        "--constraint=a100",
        "--hint=nomultithread",
        f"--chdir={tmp_path}/run",
        f"--output={tmp_path}/run/attempts/slurm-%j.out",
    ]
