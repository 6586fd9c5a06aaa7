"""What the commands show: help in words of people, each thing once, and nothing of what is not there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main

from pretrainctl.cli.main import app, main
from pretrainctl.workflows.reconcile import Look

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pretrainctl", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run


def commands(group: object, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from commands(command, (*above, name))
        elif not command.hidden:
            yield (*above, name)


@pytest.mark.parametrize("words", sorted(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_names_values_and_no_types_of_python(call: Call, words: Sequence[str]) -> None:
    status, out, _ = call(*words, "--help")
    assert status == 0
    assert "<" not in out


def test_help_says_what_a_value_is(call: Call) -> None:
    assert "--set KEY=VALUE " in call("launch", "--help")[1]
    assert "--for DURATION " in call("nodes", "exclude", "--help")[1]


def test_a_table_without_a_terminal_is_cut_only_where_columns_says_so(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = call("recipes")[1]
    assert "…" not in whole
    width = max(map(len, map(str.rstrip, whole.splitlines()))) - 5
    monkeypatch.setenv("COLUMNS", str(width))
    cut = call("recipes")[1]
    assert max(len(line.rstrip()) for line in cut.splitlines()) == width
    assert "…" in cut
    monkeypatch.setenv("COLUMNS", "1")
    assert len(call("recipes")[1].splitlines()) == len(whole.splitlines()), "still one line a row"


@pytest.mark.parametrize(
    ("outcomes", "over", "says"),
    [
        ((), 2, "2 runs are finished or stopped"),
        ((), 1, "1 run is finished or stopped"),
        ((SimpleNamespace(run="a", message="queued"),), 2, "2 other runs are finished or stopped"),
        ((SimpleNamespace(run="a", message="queued"),), 1, "1 other run is finished or stopped"),
    ],
)
def test_reconcile_counts_other_runs_only_where_there_are_some(
    call: Call, monkeypatch: pytest.MonkeyPatch, outcomes: tuple, over: int, says: str
) -> None:
    monkeypatch.setattr("pretrainctl.workflows.reconcile.reconcile", lambda _: Look(outcomes, over, 0))
    assert call("reconcile")[2] == f"{says}\n"


def test_metrics_of_a_run_without_a_step_show_no_unit(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from pretrainctl.metrics.series import read_series
    from pretrainctl.metrics.summary import summarize

    monkeypatch.setattr("pretrainctl.workflows.metrics.summarize_run", lambda _: summarize(read_series([])))
    out = call("metrics", "a")[1]
    assert "step time         -\n" in out


def test_plan_says_each_thing_once(call: Call) -> None:
    words = ("plan", "llama-8b", "--cluster", "leonardo", "--set", "cluster.account.name=a")
    _, out, err = call(*words)
    assert err.count("pretrainctl reconcile") == 1
    both = out + err
    for text in ("model FLOPs a second and GPU, measured", "15GiB", "are queued at launch", "measured on a dense"):
        assert both.count(text) == 1, text
    assert "rest on the speed above; measure a step" in err
    notes = "\n".join(json.loads(call(*words, "--json")[1])["notes"])
    assert "model FLOPs a second and GPU, measured" in notes, "a launch shows the notes alone"
    assert "None" not in call("plan", "quickstart", "--cluster", "sandbox")[2]


@pytest.mark.parametrize("piped", [False, True])
def test_doctor_reads_stdin_and_pipes(call: Call, piped: bool) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"step 1\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB.\n")
    os.close(writer)
    name, kept = (f"/dev/fd/{reader}", None) if piped else ("-", os.dup(0))
    if kept is not None:
        os.dup2(reader, 0)
    status, out, err = call("doctor", "--log", name)
    os.close(reader)
    if kept is not None:
        os.dup2(kept, 0)
        os.close(kept)
    assert (status, err) == (0, "")
    assert f"evidence  {'stdin' if name == '-' else name}:2: [rank1]: torch.OutOfMemoryError" in out
