"""Finding out what a run trains with."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrainctl.records.lineage import Lineage
from pretrainctl.recovery.consent import compare
from pretrainctl.runs import lineage
from pretrainctl.runs.lineage import (
    NOT_THERE,
    Gathering,
    bundle_facts,
    code_facts,
    data_facts,
    python_facts,
    sampled_digest,
)

SCRIPT = "#!/bin/bash\n# a\n#SBATCH --time=0-01:00:00\n#SBATCH --exclusive\n\nmodule load a\n"


def launch(*program: str, container: tuple[str, ...] = (), **environment: str) -> Any:
    return SimpleNamespace(program=program, container=container, environment=environment)


def test_settings_are_facts_of_their_own() -> None:
    texts = {
        "training.json": '{"optimizer": {"lr": 0.1, "betas": [0.9, 0.95]}, "data": {"sources": [{"prefix": "a"}]}}'
    }
    assert bundle_facts(texts) == {
        "training.optimizer.lr": "0.1",
        "training.optimizer.betas": "[0.9, 0.95]",
        "training.data.sources.0.prefix": "a",
    }
    assert bundle_facts({"training.json": "{"})["training"].startswith("unreadable")


def test_of_scripts_only_what_they_do() -> None:
    facts = bundle_facts({"job.sbatch": SCRIPT, "task.sh": "# a\nexec x\n"})
    assert (facts["job.time"], facts["job.exclusive"]) == ("0-01:00:00", "given")
    again = bundle_facts({"job.sbatch": SCRIPT.replace("# a", "# b"), "task.sh": "\nexec x \n# c\n"})
    assert facts == again
    assert bundle_facts({"job.sbatch": SCRIPT.replace("load a", "load b")})["job"] != facts["job"]
    assert bundle_facts({"task.sh": "exec y\n"})["task"] != facts["task"]


def write(path: Path, data: bytes, mtime: float = 1000.0) -> None:
    path.write_bytes(data)
    os.utime(path, (mtime, mtime))


def test_data_are_told_by_size_and_a_sample(tmp_path: Path) -> None:
    prefix = tmp_path / "a.b"
    write(tmp_path / "a.b.bin", bytes(1 << 20))
    write(tmp_path / "a.b.idx", b"index")
    facts, unknown = data_facts([prefix], {})
    assert not unknown
    assert facts[f"data.{prefix}.bin.size"] == str(1 << 20)
    write(tmp_path / "a.b.idx", b"other", 1001.0)
    write(tmp_path / "a.b.bin", bytes((1 << 20) - 1) + b"x", 1001.0)
    after, _ = data_facts([prefix], facts)
    assert {key for key in facts if facts[key] != after[key] and not key.endswith("mtime")} == {
        f"data.{prefix}.bin.digest",
        f"data.{prefix}.idx.digest",
    }


def test_data_of_the_same_size_and_time_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix in (".bin", ".idx"):
        write(tmp_path / f"a{suffix}", b"data")
    facts, _ = data_facts([tmp_path / "a"], {})
    monkeypatch.setattr(lineage, "sampled_digest", lambda *_: pytest.fail("it was read"))
    assert data_facts([tmp_path / "a"], facts)[0] == facts


def test_data_that_cannot_be_looked_at_are_unknown(tmp_path: Path) -> None:
    write(tmp_path / "a.bin", b"data")
    (tmp_path / "a.idx").symlink_to("a.idx")
    facts, unknown = data_facts([tmp_path / "a"], {})
    assert set(unknown) == {f"data.{tmp_path}/a.idx"}
    assert f"data.{tmp_path}/a.bin.size" in facts


def test_data_that_are_not_there_are_unknown_and_no_change(tmp_path: Path) -> None:
    for suffix in (".bin", ".idx"):
        write(tmp_path / f"a{suffix}", b"data")
    before = Lineage(*data_facts([tmp_path / "a"], {}))
    (tmp_path / "a.bin").unlink()
    now = Lineage(*data_facts([tmp_path / "a"], before.facts))
    assert now.unknown == {f"data.{tmp_path}/a.bin": NOT_THERE}
    assert compare(before, now) == []
    write(tmp_path / "a.idx", b"other")
    now = Lineage(*data_facts([tmp_path / "a"], before.facts))
    assert {change.key for change in compare(before, now) if change.alters} == {
        f"data.{tmp_path}/a.idx.digest",
        f"data.{tmp_path}/a.idx.size",
    }


def test_a_terabyte_is_sampled_in_no_time(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    begin = time.monotonic()
    first = sampled_digest(tmp_path / "a", 1 << 40)
    assert time.monotonic() - begin < 1.0
    with (tmp_path / "a").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert sampled_digest(tmp_path / "a", 1 << 40) != first


def test_the_training_python_is_asked_without_torch() -> None:
    facts, _ = python_facts(launch(sys.executable, "-m", "pretrainctl.trainer", "x.json"), os.environ)
    assert facts["python.version"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert facts["python.torch"].split(".")[0].isdigit()
    assert len(facts["python.module.pretrainctl.trainer"]) == 12


def test_a_changed_module_of_the_program_shows(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it is not imported')\n")
    (package / "train.py").write_text("a = 1\n")
    asked = launch(sys.executable, "-m", "mine.train", PYTHONPATH=str(tmp_path))
    before, _ = python_facts(asked, os.environ)
    assert before["python.path"] == str(tmp_path)
    (package / "train.py").write_text("a = 2\n")
    after, _ = python_facts(asked, os.environ)
    assert {key for key in before if before[key] != after[key]} == {"python.module.mine.train"}


def test_a_program_that_is_no_python_is_not_asked() -> None:
    assert python_facts(launch("/bin/bash", "train.sh"), {}) == (
        {},
        {"python": "the program does not begin with a Python"},
    )


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_code_in_git_is_told_by_its_content(tmp_path: Path) -> None:
    top = tmp_path / "code"
    (top / "scripts").mkdir(parents=True)
    script, other = top / "scripts" / "train.py", top / "model.py"
    script.write_text("a\n")
    other.write_text("b\n")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    asked = launch(sys.executable, str(script), "--data", "x")
    before, unknown = code_facts(asked, tmp_path)
    assert not unknown
    assert {key.split(".")[1] for key in before} == {"file", "commit", "tree", "pretrainctl"}
    other.write_text("c\n")
    dirty, _ = code_facts(asked, tmp_path)
    assert {key for key in before if before[key] != dirty[key]} == {f"code.tree.{top}"}
    git(top, "commit", "-qam", "second")
    committed, _ = code_facts(asked, tmp_path)
    assert {key for key in dirty if dirty[key] != committed[key]} == {f"code.commit.{top}"}, "a commit alters nothing"
    status = subprocess.run(["git", "-C", str(top), "status", "--short"], capture_output=True, text=True, check=True)
    assert status.stdout == "", "nothing of the user's was touched"


def test_code_outside_of_git_and_relative_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("a\n")
    asked = launch(sys.executable, "train.py", "gone.py")
    before, _ = code_facts(asked, tmp_path)
    (tmp_path / "train.py").write_text("b\n")
    after, _ = code_facts(asked, tmp_path)
    assert [key for key in before if before[key] != after[key]] == [f"code.file.{tmp_path}/train.py"]


def test_what_does_not_answer_is_unknown_and_not_waited_for() -> None:
    never = threading.Event()

    def stale() -> tuple[dict[str, str], dict[str, str]]:
        raise OSError(116, "Stale file handle")

    gathering = Gathering()
    gathering.add("data", lambda: (never.wait(30) and None) or ({}, {}))
    gathering.add("code", lambda: ({"code.a": "1"}, {}))
    gathering.add("image", stale)
    begin = time.monotonic()
    found = gathering.collect(0.3)
    assert time.monotonic() - begin < 2.0
    never.set()
    assert found.facts == {"code.a": "1"}
    assert found.unknown["data"] == "not known within 0.3 s"
    assert "Stale file handle" in found.unknown["image"]
