"""Which logs are taken as they are, which are copied aside, and which are refused with their true reason."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from pretrainctl.cli.main import main
from pretrainctl.errors import InputError
from pretrainctl.workflows import take_logs
from pretrainctl.workflows.doctor import examine_logs

OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.00 GiB.\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.out"
    path.write_text(OOM)
    return path


def test_a_pipe_is_read_to_its_end_and_named_as_it_was_given(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_text("a step\n" + OOM))
    writer.start()
    said: list[str] = []
    found = examine_logs([fifo], say=said.append)
    writer.join()
    assert found.failure_class == "gpu_oom"
    assert found.evidence[0].startswith(f"{fifo}:2: ")
    assert said == [f"reading {fifo} until its writer ends"]


def test_a_pipe_that_nobody_writes_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(take_logs, "WRITER_WAIT", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="nobody writes into"):
        examine_logs([fifo])
    monkeypatch.setattr(sys, "argv", ["pretrainctl", "doctor", "--log", str(fifo)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert f"{fifo} is a pipe that nobody writes into" in capsys.readouterr().err


def test_a_writer_that_is_slow_to_say_something_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_logs, "WRITER_WAIT", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def write() -> None:
        with fifo.open("w") as file:
            time.sleep(0.4)
            file.write(OOM)

    writer = threading.Thread(target=write)
    writer.start()
    assert examine_logs([fifo]).failure_class == "gpu_oom"
    writer.join()


def test_what_is_empty_is_said_to_be(log: Path, tmp_path: Path) -> None:
    empty, other = tmp_path / "empty.out", tmp_path / "other.out"
    empty.touch()
    other.touch()
    found = examine_logs([empty])
    assert (found.failure_class, found.message) == ("unknown", f"{empty} is empty")
    assert "where its output goes" in found.hint
    assert examine_logs([empty, other]).message == "all 2 logs are empty"
    beside = examine_logs([empty, log])
    assert (beside.failure_class, beside.notes) == ("gpu_oom", (f"{empty} is empty",))


def test_what_a_shell_passes_as_a_file(log: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, OOM.encode())
    os.close(writer)
    try:
        assert examine_logs([Path(f"/dev/fd/{reader}")]).failure_class == "gpu_oom"
    finally:
        os.close(reader)
    with log.open() as file:
        assert examine_logs([Path(f"/dev/fd/{file.fileno()}")]).failure_class == "gpu_oom"


def test_the_same_file_counts_once(log: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(log)
    found = examine_logs([log, log, tmp_path / "link"])
    assert len(found.evidence) == 1
    assert "lines like it" not in found.evidence[0]


@pytest.mark.parametrize(
    ("data", "says", "hint"),
    [
        (gzip.compress(OOM.encode(), mtime=0), "compressed by gzip", "zcat"),
        (bz2.compress(OOM.encode()), "compressed by bzip2", "bzcat"),
        (lzma.compress(OOM.encode()), "compressed by xz", "xzcat"),
        (OOM.encode("utf-16"), "in UTF-16", "iconv"),
        (OOM.encode("utf-16-le"), "in UTF-16", "iconv"),
        (bytes(range(256)) * 9, "is no plain text", "that the program printed"),
    ],
)
def test_what_is_no_plain_text_is_said_by_name(log: Path, tmp_path: Path, data: bytes, says: str, hint: str) -> None:
    (tmp_path / "b.out").write_bytes(data)
    with pytest.raises(InputError, match=says) as caught:
        examine_logs([log, tmp_path / "b.out"])
    assert str(caught.value).startswith(f"{tmp_path}/b.out is ")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 4096,
        b"\0" * 200_000 + OOM.encode(),
        "Größe 5 µs\n".encode("latin-1") * 50,
        b"\x1b[32mok\x1b[0m\n" * 9,
    ],
)
def test_what_a_torn_or_coloured_log_holds_is_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "b.out").write_bytes(data)
    assert examine_logs([tmp_path / "b.out"]).failure_class == ("gpu_oom" if b"rank1" in data else "unknown")


@pytest.mark.parametrize(
    ("path", "says"),
    [("/dev/null", "a device"), ("/proc/kmsg", "by the kernel"), ("/proc", "a folder"), ("/no/such", "not there")],
)
def test_what_is_no_log(path: str, says: str) -> None:
    with pytest.raises(InputError, match=f"{path} is .*{says}") as caught:
        examine_logs([Path(path)])
    assert "logs/*.out" in caught.value.hint


def test_what_cannot_be_read_is_refused_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PRETRAINCTL_CONFIG")  # in a folder that is closed to others
    before = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        closed, other = Path(folder) / "a.out", Path(folder) / "b.out"
        for path, mode in ((closed, 0), (other, 0o644)):
            path.write_text(OOM)
            path.chmod(mode)
        Path(folder).chmod(0o755)
        for words in (["--log", str(closed)], ["--log", str(other), str(closed)]):
            monkeypatch.setattr(sys, "argv", ["pretrainctl", "doctor", *words])
            if before == 0:  # whom nothing stops
                os.seteuid(65534)
            try:
                with pytest.raises(SystemExit) as caught:
                    main()
            finally:
                os.seteuid(before)
            assert caught.value.code == 2
            assert capsys.readouterr().err.splitlines() == [
                f"error: {closed} cannot be read: Permission denied",
                "hint: check its permissions",
            ]
