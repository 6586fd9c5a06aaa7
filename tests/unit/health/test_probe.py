"""The program that runs on the nodes, as it runs there: a file of its own, in any Python."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrainctl.health import verdict
from pretrainctl.liveness.beat import TOKEN_VARIABLE
from pretrainctl.liveness.listener import Listener
from pretrainctl.records.launch import LivenessRule
from pretrainctl.records.nodes import NodeAnswer, PathAnswer

FAKE_TORCH = """\
import time
bfloat16 = "bf16"
class Matrix:
    def __init__(self, value): self.value = value
    def to(self, _kind): return self
    def __mul__(self, _other): return self
    def __sub__(self, _other): return self
    def __matmul__(self, _other): return Matrix({product})
    def __eq__(self, other): self.same = self.value == other; return self
    def all(self): return self.same
def ones(*_size, **_more): return Matrix(1)
def randint(*_bounds, **_more): return Matrix(1)
class cuda:
    device_count = staticmethod(lambda: {count})
    mem_get_info = staticmethod(lambda _index: ({free} << 30, 64 << 30))
    synchronize = staticmethod(lambda _index: time.sleep({pause}))
"""


@pytest.fixture
def listener() -> Iterator[Listener]:
    """What the batch host listens with."""
    listener = Listener(LivenessRule(), bind="127.0.0.1")
    listener.serve()
    yield listener
    listener.close()


def ask(
    listener: Listener, folder: Path, *, seconds: float = 8.0, gpus: int = 0, options: tuple[str, ...] = (), **more: str
) -> NodeAnswer:
    program = folder / "probe.py"
    program.write_text(verdict.program())
    done = subprocess.run(
        [sys.executable, *options, str(program), str(seconds), str(gpus), "127.0.0.1", str(listener.port)],
        env={"SLURMD_NODENAME": "gn001", TOKEN_VARIABLE: listener.token, "TMPDIR": str(folder), **more},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return verdict.read_answers(f"a library says hello\n0: {done.stdout}")["gn001"]


def fake_torch(
    folder: Path, *, product: str = "8192", count: int | str = 2, free: int = 63, pause: str = "0.001"
) -> str:
    (folder / "torch.py").write_text(FAKE_TORCH.format(product=product, count=count, free=free, pause=pause))
    return str(folder)


def test_a_node_that_is_well_passes_with_nothing_but_the_standard_library(listener: Listener, tmp_path: Path) -> None:
    answer = ask(listener, tmp_path, options=("-S", "-I"))
    assert answer.failed == {}
    assert set(answer.passed) == {"matmul", "shm", "tmpdir", "peers"}
    assert abs(answer.time - time.time()) < 30
    assert 0 < answer.figures["matmul_seconds"] < 1
    assert not listener.seen(), "it asks, and is no beat"


def test_a_folder_that_is_not_there_and_a_host_that_does_not_answer(listener: Listener, tmp_path: Path) -> None:
    answer = ask(listener, tmp_path, TMPDIR=str(tmp_path / "gone"), **{TOKEN_VARIABLE: "wrong"})
    assert set(answer.failed) == {"tmpdir", "peers"}
    assert "No such file" in answer.failed["tmpdir"]
    assert "closed the connection" in answer.failed["peers"]


@pytest.mark.parametrize(
    ("torch", "wrong"),
    [
        ({}, None),
        ({"count": 1}, "1 GPUs are seen, 2 were asked for"),
        ({"free": 40}, "GPU 0: 24576 of 65536 MiB are taken before the training"),
        ({"product": "8191"}, "GPU 0: a product of ones is wrong"),
        ({"product": "1 / 0"}, "ZeroDivisionError: division by zero"),
    ],
)
def test_gpus_by_a_stand_in_for_torch(
    listener: Listener, tmp_path: Path, torch: dict[str, object], wrong: str | None
) -> None:
    answer = ask(listener, tmp_path, gpus=2, PYTHONPATH=fake_torch(tmp_path, **torch))  # type: ignore[arg-type]
    assert answer.failed.get("gpu") == wrong
    assert ("gpu" in answer.passed) == (wrong is None)
    assert ("gpu_matmul_seconds" in answer.figures) == (wrong is None)


def test_a_driver_that_hangs_hides_nothing_of_the_rest(listener: Listener, tmp_path: Path) -> None:
    begun = time.monotonic()
    answer = ask(listener, tmp_path, gpus=2, seconds=2, PYTHONPATH=fake_torch(tmp_path, count="time.sleep(600)"))
    assert time.monotonic() - begun < 10
    assert answer.failed["gpu"] == "asking the driver: no answer within 2 s"
    assert set(answer.passed) == {"matmul", "shm", "tmpdir", "peers"}


@pytest.mark.parametrize(
    ("torch", "at"), [("import time; time.sleep(600)", "loading torch"), (None, "loading libraries for a product")]
)
def test_libraries_that_come_late_are_no_fault_of_a_gpu(
    listener: Listener, tmp_path: Path, torch: str | None, at: str
) -> None:
    fake_torch(tmp_path, pause="600")
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch)
    answer = ask(listener, tmp_path, gpus=2, seconds=2, PYTHONPATH=str(tmp_path))
    assert answer.failed == {}
    assert answer.notes == (f"GPUs are not tested: {at}: no answer within 2 s",)
    assert set(answer.passed) == {"matmul", "shm", "tmpdir", "peers"}


def test_a_driver_that_dies_is_told(listener: Listener, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    answer = ask(listener, tmp_path, gpus=1, PYTHONPATH=str(tmp_path))
    assert answer.failed["gpu"] == "the process that tests the GPUs died"


def test_without_torch_gpus_are_not_judged(listener: Listener, tmp_path: Path) -> None:
    answer = ask(listener, tmp_path, gpus=1, options=("-S", "-I"))
    assert "gpu" not in {*answer.failed, *answer.passed}
    assert answer.notes[0].startswith("GPUs are not tested: No module named 'torch'")


def test_lines_that_are_no_whole_answer_are_none() -> None:
    whole = {"node": "gn001", "time": 1.0, "failed": {}, "passed": [], "figures": {}, "notes": []}
    text = f"1: pretrainctl-node-test {json.dumps(whole)}\n2: pretrainctl-node-test {{'node'\nsrun: error: x\n"
    assert list(verdict.read_answers(text)) == ["gn001"]


def test_paths_are_told_by_their_numbers(listener: Listener, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    names = [str(there), *(str(tmp_path / "gone" / str(number)) for number in range(3)), str(there), "/nowhere"]
    (tmp_path / "paths.json").write_text(json.dumps(names))
    answer = ask(listener, tmp_path, options=("-S", "-I"))
    assert answer.paths == PathAnswer("1-3,5")
    assert set(answer.passed) == {"matmul", "shm", "tmpdir", "peers"}
    (tmp_path / "paths.json").write_text(json.dumps([str(there)] * 1000))
    answer = ask(listener, tmp_path)
    assert (answer.paths, "paths" in answer.passed) == (PathAnswer(), True)
    assert answer.failed == {}


def test_a_mount_that_hangs_hides_nothing_of_the_rest(listener: Listener, tmp_path: Path) -> None:
    """A stand-in for pathlib's stat, which hangs in the names of one folder."""
    hung = [str(tmp_path / "hung" / str(number)) for number in range(15)]
    (tmp_path / "paths.json").write_text(json.dumps([*hung, str(tmp_path), "/nowhere"]))
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, time\n"
        "stat = pathlib.Path.stat\n"
        "pathlib.Path.stat = lambda path: time.sleep(600) if path.parent.name == 'hung' else stat(path)\n"
    )
    begun = time.monotonic()
    answer = ask(listener, tmp_path, seconds=5, PYTHONPATH=str(tmp_path))
    assert time.monotonic() - begun < 10
    assert answer.paths == PathAnswer(absent="16", unknown="0-14", stuck=0)
    assert (answer.failed, set(answer.passed)) == ({}, {"matmul", "shm", "tmpdir", "peers"})
    soon = ask(listener, tmp_path, seconds=1, PYTHONPATH=str(tmp_path))
    assert soon.paths == PathAnswer(absent="16", unknown="0-14"), "slow is not stuck"


def test_an_answer_of_many_ranges_stays_a_short_line(listener: Listener, tmp_path: Path) -> None:
    """srun gives a line in parts where it is longer than 1024 bytes."""
    names = [str(tmp_path) if number % 2 else f"/nowhere/{number}" for number in range(2000)]
    (tmp_path / "paths.json").write_text(json.dumps(names))
    answer = ask(listener, tmp_path)
    assert answer.paths is not None
    assert answer.paths.absent == ",".join(str(number) for number in range(0, 40, 2))
    assert answer.paths.unknown == "40-1999"
    assert len(json.dumps(dataclasses.asdict(answer))) < 900
