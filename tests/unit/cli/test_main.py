"""Errors as people see them: one clear line, a hint, a documented exit code, no traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main

from pretrainctl import errors
from pretrainctl.cli.main import app, main
from pretrainctl.records import codec
from pretrainctl.records.run import RunRecord
from pretrainctl.runs import ledger
from pretrainctl.workflows import launch as launching
from pretrainctl.workflows.check_cluster import Finding
from tests.unit.records.test_token_index import write_tokens


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pretrainctl", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


def raising(error):
    def make_plan(*_, **__):
        raise error

    return make_plan


PLAN = ("plan", "quickstart", "--cluster", "sandbox")


def test_an_error_is_a_line_a_hint_and_its_code(call):
    status, out, err = call(*PLAN, "--set", "training.micro_batch=3")
    assert status == 2
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: global batch 8 != micro batch 3")
    assert second.startswith("hint: use a global batch of 6 or 12 samples")


@pytest.mark.parametrize("name", errors.__all__)
def test_each_kind_of_error_has_its_exit_code(call, monkeypatch, name):
    kind = getattr(errors, name)
    monkeypatch.setattr("pretrainctl.workflows.unheard.plan_warned", raising(kind("it is so", hint="do this")))
    assert call(*PLAN) == (kind.exit_code, "", "error: it is so\nhint: do this\n")


def test_a_full_disk_is_a_line_and_not_a_traceback(call, monkeypatch):
    error = OSError(errno.ENOSPC, "No space left on device", "/runs/a")
    monkeypatch.setattr("pretrainctl.workflows.unheard.plan_warned", raising(error))
    status, _, err = call(*PLAN)
    assert status == 1
    assert err.splitlines()[0] == "error: /runs/a: No space left on device"
    assert err.splitlines()[1].startswith("hint: ")


def test_an_interrupt_ends_with_130(call, monkeypatch):
    monkeypatch.setattr("pretrainctl.workflows.unheard.plan_warned", raising(KeyboardInterrupt()))
    status, out, err = call(*PLAN)
    assert (status, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_end_from_outside_is_an_exception(call, monkeypatch, number):
    undone = []

    def make_plan(*_, **__):
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            undone.append(number)

    before = signal.signal(number, signal.SIG_DFL)
    monkeypatch.setattr("pretrainctl.workflows.unheard.plan_warned", make_plan)
    try:
        assert call(*PLAN) == (128 + number, "", "")
    finally:
        signal.signal(number, before)
    assert undone == [number]


def test_debug_shows_the_traceback(call, monkeypatch):
    monkeypatch.setattr("pretrainctl.workflows.unheard.plan_warned", raising(errors.RunError("it is so")))
    monkeypatch.setattr(sys, "argv", ["pretrainctl", "--debug", *PLAN])
    with pytest.raises(errors.RunError):
        main()
    monkeypatch.setenv("PRETRAINCTL_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["pretrainctl", *PLAN])
    with pytest.raises(errors.RunError):
        main()


def test_a_wrong_option_is_no_traceback_either(call):
    status, out, err = call("plan", "--no-such-option")
    assert (status, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: no such option: --no-such-option")
    assert second == "hint: `pretrainctl plan --help` shows how it is called"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan",), "error: missing argument 'RECIPE'"),
        (("nosuch",), "error: no such command 'nosuch'"),
        (("nodes", "nosuch"), "error: no such command 'nosuch'"),
        (("logs", "a", "-n", "x"), "error: invalid value for '--lines' / '-n'"),
        (("plan", "a", "b"), "error: got unexpected extra argument"),
        (("plan", "a", "--set"), "error: option '--set' requires an argument"),
    ],
)
def test_words_that_are_no_command_are_told_as_other_errors_are(call, words, said):
    status, out, err = call(*words)
    assert (status, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith(said)
    assert re.fullmatch(r"hint: `pretrainctl[a-z ]* --help` shows how it is called", second)


def test_without_a_command_the_help_is_shown(call):
    for words in ((), ("nodes",), ("sandbox",)):
        status, out, err = call(*words)
        assert status == 2
        assert "Usage: pretrainctl" in out + err
        assert "error:" not in err


@pytest.mark.parametrize("words", [(), ("plan",), ("nodes",), ("nodes", "exclude"), ("sandbox", "up"), ("doctor",)])
def test_a_short_option_asks_for_help_too(call, words):
    assert call(*words, "-h") == call(*words, "--help")
    assert "Usage: pretrainctl" in call(*words, "-h")[1]


def test_a_reader_that_leaves_ends_the_command_in_silence(tmp_path):
    command = f"{shlex.quote(sys.executable)} -m pretrainctl"
    for words in ("render quickstart -c sandbox", "explain quickstart -c sandbox", "recipes", "--help", "plan --help"):
        script = f"{command} {words} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_working_folder_that_is_gone_is_named(tmp_path):
    for words in ("plan quickstart -c sandbox", "render quickstart -c sandbox", "status", "reconcile"):
        script = (
            f"mkdir {tmp_path}/a && cd {tmp_path}/a && rmdir {tmp_path}/a && {sys.executable} -m pretrainctl {words}"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == "error: the working folder does not exist any more\nhint: go to another one: cd\n"


def test_a_configuration_folder_that_is_not_there_is_told(call, monkeypatch, tmp_path):
    monkeypatch.setenv("PRETRAINCTL_CONFIG", str(tmp_path / "nosuch"))
    status, _, err = call(*PLAN)
    assert status == 0
    assert f"warning: PRETRAINCTL_CONFIG names {tmp_path / 'nosuch'}, which is no folder\n" in err
    monkeypatch.setenv("PRETRAINCTL_CONFIG", str(tmp_path))
    assert "PRETRAINCTL_CONFIG" not in call(*PLAN)[2]


def test_a_bundle_that_is_written_is_told_as_json(call, tmp_path):
    status, out, _ = call("render", "quickstart", "-c", "sandbox", "-o", str(tmp_path / "b"), "--json")
    assert status == 0
    found = json.loads(out)
    assert found["srun"][0] == "srun"
    assert {Path(path).name for path in found["files"]} == {path.name for path in (tmp_path / "b").iterdir()}


def test_a_profile_whose_queues_are_not_there_does_not_pass_its_check(call, monkeypatch):
    finding = Finding("queue normal: partition", "a", "not there; there are: b", refused=True)
    other = Finding("queue debug: max_nodes", "4", "at most 2")
    for found, code in (([other], 0), ([finding, other], 12)):
        monkeypatch.setattr("pretrainctl.workflows.check_cluster.check_cluster", lambda _, found=found: found)
        for more in ((), ("--json",)):
            status, out, err = call("clusters", "--check", "leonardo", *more)
            assert status == code
            assert "at most 2" in out
            assert ("error: this Slurm would refuse jobs of leonardo: queue normal" in err) == (code == 12)


def test_plan_shows_and_prints_json(call):
    status, out, err = call(*PLAN, "--set", "training.tokens=1M")
    assert status == 0
    assert "489 of 2048 tokens" in out
    assert err == "note: 1M tokens are rounded up to 489 whole steps of 2048 tokens: 1001472 tokens\n"
    status, out, _ = call(*PLAN, "--json")
    assert status == 0
    assert json.loads(out)["geometry"]["total_steps"] == 160


def test_render_prints_the_scripts_and_writes_the_bundle(call, tmp_path):
    status, out, err = call("render", "quickstart", "--cluster", "sandbox")
    assert (status, err) == (0, "")
    assert "#SBATCH --job-name=quickstart-" in out
    assert f"attempt {tmp_path}/runs/quickstart\n" in out
    assert not (tmp_path / "runs").exists()
    status, out, _ = call("render", "quickstart", "-c", "sandbox", "--output", "bundle")
    assert status == 0
    assert sorted(path.name for path in (tmp_path / "bundle").iterdir()) == [
        "deepspeed.json",
        "job.sbatch",
        "launch.json",
        "task.sh",
        "training.json",
    ]
    status, _, err = call("render", "quickstart", "-c", "sandbox", "--output", "bundle")
    assert status == 2
    assert "is not an empty folder" in err


def test_render_shows_the_srun_of_the_attempt(call):
    _, out, _ = call("render", "quickstart", "--cluster", "sandbox")
    head, _, srun = out.partition("# ----- the srun of the attempt")
    assert "--nodelist" not in head
    assert "\n# srun \\\n#   --job-name=train-1-0 \\\n#   --nodes=2 \\\n" in srun
    assert srun.rstrip().endswith("bundle/task.sh")
    _, out, _ = call("render", "quickstart", "--cluster", "sandbox", "--json")
    argv = json.loads(out)["srun"]
    assert (argv[0], argv[-2]) == ("srun", "bash")
    assert "--nodelist=node[1-2]" in argv


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("render", "quickstart", "-c", "sandbox", "-c", "leonardo"), "--cluster"),
        (("plan", "quickstart", "-csandbox", "--cluster=leonardo"), "--cluster"),
        (("launch", "quickstart", "-c", "sandbox", "--name", "a", "--name", "a"), "--name"),
        (("sandbox", "up", "--nodes", "3", "--nodes", "4"), "--nodes"),
        (("lint", "x.sh", "-c", "leonardo", "-c", "jupiter"), "--cluster"),
    ],
)
def test_an_option_that_may_come_once_is_refused_when_it_comes_again(call, arguments, option):
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {option} was given 2 times, and only one is taken\n")


def test_no_command_takes_the_last_of_two_values_in_silence(call):
    found = 0
    for words, command in walk(typer.main.get_command(app), ()):
        for option in command.params:
            if option.param_type_name == "option" and not (option.multiple or option.is_flag):
                status, _, err = call(*words, option.opts[0], "1", option.opts[0], "1")
                assert (status, "was given 2 times" in err) == (2, True), (words, option.opts)
                found += 1
    assert found > 20


def walk(command, words):
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*words, name))
    if words and not getattr(command, "commands", {}):
        yield words, command


def test_what_may_come_often_is_taken(call):
    assert call(*PLAN, "--set", "resources.nodes=2", "--set", "training.micro_batch=4")[0] == 0
    assert call(*PLAN, "--json", "--json")[0] == 0


def test_what_is_blocked_or_may_fail_stands_out_in_a_plan(call):
    large = ("-c", "leonardo", "--set", "cluster.account.name=a")
    status, out, err = call("plan", "moe-8x7b", *large)
    assert status == 0
    assert "\nrefused      render and launch refuse moe-8x7b: it is a mixture of 8 experts" in out
    assert err.startswith("warning: render and launch refuse moe-8x7b")
    status, _, err = call("plan", "llama-8b", *large, "--set", "training.recompute=false")
    assert (status, err.count("warning: ")) == (0, 1)
    assert err.startswith("warning: model states 16GiB and at most")
    _, out, _ = call("plan", "llama-8b", *large, "--set", "training.recompute=false", "--json")
    made = json.loads(out)
    assert "may not fit" in made["warnings"][0]
    assert made["estimate"]["speed"]["basis"] == "measured"
    _, out, _ = call("plan", "llama-8b", *large)
    assert "\nspeed        190T model FLOPs a second and GPU, measured on a dense model of 6.7B" in out


def test_render_needs_no_slurm_and_no_data(call, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert call("render", "quickstart", "--cluster", "sandbox")[0] == 0


def test_recipes_and_clusters_are_listed(call):
    status, out, _ = call("recipes")
    assert status == 0
    assert "quickstart" in out
    status, out, _ = call("clusters", "--json")
    assert status == 0
    assert "sandbox" in [row["name"] for row in json.loads(out)]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(tmp_path, closed):
    out = tmp_path / "bundle"
    command = f"{shlex.quote(sys.executable)} -m pretrainctl render quickstart -c sandbox"
    for more, status in (("", 0), (f" --output {out}", 0), (" --set a=1", 2)):
        done = subprocess.run(
            ["bash", "-c", f"{command}{more} {closed}"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status
        assert "Traceback" not in done.stderr
    assert "error" not in (out / "launch.json").read_text()


def test_arguments_are_named_alike(call):
    for command in ("plan", "launch", "logs", "status", "reconcile", "doctor", "attempt"):
        usage = call(command, "--help")[1].splitlines()
        (words,) = [line for line in usage if "Usage:" in line]
        (argument,) = re.findall(r"[\[{]*(?:RECIPE|RUN|FOLDER)[\]}]*", words)
        assert argument in {"{RECIPE}", "{RUN}", "[RUN]", "{FOLDER}", "RECIPE", "RUN", "FOLDER"}


CHEAP = ("launch", "quickstart", "-c", "sandbox", "--name", "a")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("resources.seconds_per_step=600", "training.tokens=60M"), "node-hours are more than 100"),
        (("resources.seconds_per_step=null",), "how many jobs it takes is unknown"),
    ],
)
def test_more_than_is_asked_for_or_an_unknown_cost_needs_a_yes(call, monkeypatch, tmp_path, settings, says):
    write_tokens(tmp_path / "data" / "quickstart", 1000)
    monkeypatch.setattr(launching, "_slurm_for", lambda _: ("", SimpleNamespace(cluster_name=lambda: "c")))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    sets = [word for value in settings for word in ("--set", value)]
    status, _, err = call(*CHEAP, *sets)
    assert status == 2
    assert says in err
    assert "give --yes" in err
    assert not (tmp_path / "runs").exists()


def test_launch_warns_of_what_may_not_fit_before_it_asks(call, monkeypatch):
    slurm = SimpleNamespace(cluster_name=lambda: "c", test_only=lambda *_: "to start at once")
    monkeypatch.setattr(launching, "_slurm_for", lambda *_: ("", slurm))
    monkeypatch.setattr(launching, "refuse_missing_data", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    tight = ("llama-8b", "-c", "leonardo", "--set", "cluster.account.name=a", "--set", "training.recompute=false")
    status, _, err = call("launch", *tight)
    assert status == 2
    assert err.count("warning: model states 16GiB and at most") == 1
    assert err.index("warning: ") < err.index("note: ")
    assert "warning: model states" in call("launch", *tight, "--test-only")[2]
    _, out, _ = call("launch", *tight, "--test-only", "--json")
    assert "may not fit" in json.loads(out)["warnings"][0]


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03])
def test_ctrl_c_while_the_command_starts_ends_with_130_and_no_traceback(after):
    # The signal comes when Python begins to read the modules of the command, or a little later.
    code = (
        "import pretrainctl.__main__ as entry, sys, threading, os, signal\n"
        "class Told:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pretrainctl.cli':\n"
        f"            threading.Timer({after}, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "sys.meta_path.insert(0, Told())\n"
        "sys.argv = ['pretrainctl', 'plan', 'llama-8b', '-c', 'sandbox']\n"
        "entry.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding_shows_codes_and_json_stays_json(encoding, tmp_path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "pretrainctl", *arguments, "-c", "sandbox", "--set", "name=\N{LLAMA}"],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
        )

    for command in ("plan", "render"):
        done = run(command, "quickstart")
        assert (done.returncode, done.stderr) == (0, b"")
        assert rb"\U0001f999" in done.stdout
    assert json.loads(run("plan", "quickstart", "--json").stdout)["name"] == "\N{LLAMA}"
    assert b"no queue" in run("plan", "quickstart", "--set", "resources.queue=\N{LLAMA}").stderr


def test_text_that_is_no_unicode_is_shown_by_its_code(tmp_path):
    (tmp_path / "a" / "bundle").mkdir(parents=True)
    launch = Path(__file__).parents[3] / "tests" / "golden" / "quickstart-on-sandbox" / "launch.json"
    (tmp_path / "a" / "bundle" / "launch.json").write_text(launch.read_text())
    codec.write(tmp_path / "a" / "run.json", RunRecord("a", "a", "a", "sandbox", 0.0, "u", {}, {}, {}))
    ledger.append(tmp_path / "a", "note", "lone \ud800, byte \udcff")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PRETRAINCTL_RUNS": str(tmp_path)}
    argv = [sys.executable, "-m", "pretrainctl", "status", "a"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert r"lone \ud800, byte \udcff" in done.stdout


@pytest.mark.parametrize("command", ["plan", "lint"])
def test_a_name_that_no_file_system_takes_is_bad_input(call, command):
    status, out, err = call(command, "x" * 300, "-c", "sandbox")
    assert (status, out) == (2, "")
    assert len(err.splitlines()) <= 2
    assert "Traceback" not in err
