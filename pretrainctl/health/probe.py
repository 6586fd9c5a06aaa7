"""The quick test of one node: `python probe.py SECONDS GPUS HOST PORT` prints one line of JSON.

It runs in the training Python, inside the container where there is one, which need not hold pretrainctl: so this file
stands alone, on the standard library, and on torch where GPUs were asked for; `paths.json` beside it lists what to look
for. Each check has a bound of its own, and runs beside the others, that of the GPUs in a process of its own: what hangs
in a file system or a driver does not hide what the others found. The line is printed before SECONDS are over.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import queue
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

__all__ = ["MARK", "PATHS", "Probe", "main"]

MARK = "pretrainctl-node-test "
"""In front of the JSON, among what a container or a library prints."""
PATHS = "paths.json"
"""A list, the most telling first: not all may be looked at in time."""
TOKEN_VARIABLE = "PRETRAINCTL_BEAT_TOKEN"  # noqa: S105 - the name of a variable

_LEAST_FREE = {"shm": 32 << 20, "tmpdir": 64 << 20}
"""Bytes: below them NCCL finds no room for its buffers, and compilers none for what they make."""
_WRITTEN = 1 << 20
_MOST_USED = 0.2
"""Share of a GPU's memory that may be taken before the training is there."""
_SIZE = 24
_TRIES = 200
"""Of about half a millisecond: the shortest of them is the processor's own, also where many others run on it (0.49 to
0.51 ms for three at once on two cores with a load of 17, where tries of 10 ms took up to 35)."""
_GPU_SIZE = 8192
_GPU_TRIES = 5
_DRIVER = "asking the driver"
_REST = 1.0
"""Seconds to say at what the GPUs' process was."""
_SHORT = 4.0
"""Seconds for a check that takes milliseconds where all is well."""
_LOOKING = 8.0
"""Seconds for all paths: a server of metadata that many nodes ask at once is slow, and no fault of a node."""
_LOOKERS = 16
_MOST_RANGES = 20
"""srun cuts what comes as a line of more than 1024 bytes (its MAX_MSG_LEN)."""


class Probe:
    """The checks of this node; `failed`, `passed`, `figures` and `notes` fill while they run."""

    def __init__(self, seconds: float, gpus: int, host: str, port: int) -> None:
        self.failed: dict[str, str] = {}
        self.passed: list[str] = []
        self.figures: dict[str, float] = {}
        self.notes: list[str] = []
        self.paths: dict[str, object] | None = None
        self._seconds = seconds
        self._gpus = gpus
        self._peer = (host, port)
        self._lock = threading.Lock()
        self._say = -1
        self._child = 0

    def run(self) -> None:
        """Make all checks; those that do not end in time have failed by that."""
        begun = time.monotonic()
        self._check("matmul", self._matmul)  # alone: the others would disturb what it measures
        gpus = self._gpus_aside(begun + self._seconds) if self._gpus else None
        begun = time.monotonic()  # a slow node is not one that does not answer
        waits = [
            (name, self._start(name, check), bound)
            for name, check, bound in (
                ("shm", lambda: self._folder("shm", "/dev/shm"), _SHORT),  # noqa: S108 - what NCCL uses
                ("tmpdir", lambda: self._folder("tmpdir", os.environ.get("TMPDIR") or "/tmp"), _SHORT),  # noqa: S108
                ("peers", self._reach, _SHORT),
                ("paths", self._look_for_paths, self._seconds + _REST),
                *((("gpu", gpus, self._seconds + _REST),) if gpus else ()),
            )
        ]
        for name, thread, bound in waits:
            thread.join(max(0.0, begun + bound - time.monotonic()))
            with self._lock:
                if thread.is_alive() and name not in self.failed and name not in self.passed:
                    self.failed[name] = f"no answer within {bound:g} s"
        if self._child:
            os.kill(self._child, signal.SIGKILL)  # a zombie where it has ended: the number is still its own

    def _start(self, name: str, check: Callable[[], str | None]) -> threading.Thread:
        thread = threading.Thread(target=self._check, args=(name, check), daemon=True)
        thread.start()
        return thread

    def _check(self, name: str, check: Callable[[], str | None]) -> None:
        """Run one: it returns what is wrong, "" for nothing, None where that cannot be told here."""
        try:
            wrong = check()
        except Exception as error:  # noqa: BLE001 - of a driver or library, whatever it is: it is the answer
            wrong = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        with self._lock:
            if wrong:
                self.failed.setdefault(name, wrong)
            elif wrong == "" and name not in self.failed:
                self.passed.append(name)

    def _matmul(self) -> str:
        """A product of matrices in plain Python, whose value is known; the shortest of some tries is the figure."""
        left = [[_left(row, column) for column in range(_SIZE)] for row in range(_SIZE)]
        right = [[_right(row, column) for row in range(_SIZE)] for column in range(_SIZE)]  # transposed
        total = _expected_total()
        best = float("inf")
        for _ in range(_TRIES):
            begun = time.perf_counter()
            found = sum(sum(map(operator.mul, row, column)) for row in left for column in right)
            best = min(best, time.perf_counter() - begun)
            if found != total:
                return f"a product of whole numbers came out as {found}, not {total}"
        self.figures["matmul_seconds"] = round(best, 7)
        return ""

    def _folder(self, name: str, path: str) -> str:
        """A folder can be written, and has room."""
        free = shutil.disk_usage(path).free
        self.figures[f"{name}_free_bytes"] = float(free)
        if free < _LEAST_FREE[name]:
            return f"{path} has {free >> 20} MiB free, and {_LEAST_FREE[name] >> 20} MiB are needed"
        try:
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(bytes(_WRITTEN))
                file.flush()
        except OSError as error:
            return f"{path} cannot be written: {error.strerror}"
        return ""

    def _reach(self) -> str:
        """The batch host answers on the port of the beats."""
        host, port = self._peer
        begun = time.monotonic()
        try:
            with socket.create_connection(self._peer, timeout=_SHORT) as connection:
                connection.sendall(f"{os.environ.get(TOKEN_VARIABLE, '')} ?\n".encode())
                if not connection.recv(256):
                    return f"{host}:{port} closed the connection"
        except OSError as error:
            return f"{host}:{port} cannot be reached: {error}"
        self.figures["reach_seconds"] = round(time.monotonic() - begun, 6)
        return ""

    def _look_for_paths(self) -> str | None:
        """Which of the paths are seen here. Whose fault it is where one is not, the answers of all nodes say."""
        try:
            paths = json.loads(Path(__file__).with_name(PATHS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        look = _Look(paths, min(self._seconds, _LOOKING))
        self.paths = look.answer()
        self.figures["paths_seconds"] = round(look.seconds, 6)
        return None if self.paths["absent"] or self.paths["unknown"] else ""

    def _gpus_aside(self, deadline: float) -> Callable[[], str | None]:
        """Test the GPUs in a process beside this one: a library that is loaded, or a driver that hangs, stops all
        threads of its process."""
        reader, writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._say = writer
            self._check("gpu", self._gpu)
            found = [self.failed.get("gpu"), "gpu" in self.passed, self.figures, self.notes]
            os.write(writer, f"{json.dumps(found)}\n".encode())
            os._exit(0)
        os.close(writer)
        return lambda: self._hear(reader, deadline)

    def _hear(self, reader: int, deadline: float) -> str | None:
        """What the process beside this one finds. It says what it is at, line by line, before its answer: libraries
        that many nodes read at once come late, and that is no fault of a GPU."""
        text = b""
        while not text.endswith(b"]\n"):
            if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                at = text.decode().splitlines()[-1] if text else "start"
                wrong = f"{at}: no answer within {self._seconds:g} s"
                if at != _DRIVER:
                    self.notes.append(f"GPUs are not tested: {wrong}")
                    return None
                return wrong
            said = os.read(reader, 1 << 16)
            if not said:
                return "the process that tests the GPUs died"
            text += said
        failed, passed, figures, notes = json.loads(text.splitlines()[-1])
        self.figures.update(figures)
        self.notes += notes
        return failed or ("" if passed else None)

    def _gpu(self) -> str | None:
        """As many GPUs as were asked for, their memory free, and each multiplies matrices right."""
        os.write(self._say, b"loading torch\n")
        try:
            import torch
        except ImportError as error:
            self.notes.append(f"GPUs are not tested: {error}")
            return None
        os.write(self._say, f"{_DRIVER}\n".encode())
        count = torch.cuda.device_count()
        self.figures["gpus"] = float(count)
        if count < self._gpus:
            return f"{count} GPUs are seen, {self._gpus} were asked for"
        for index in range(self._gpus):
            free, total = torch.cuda.mem_get_info(index)
            if total - free > _MOST_USED * total:
                return f"GPU {index}: {(total - free) >> 20} of {total >> 20} MiB are taken before the training"
        os.write(self._say, b"loading libraries for a product\n")
        slowest = 0.0
        for index in range(self._gpus):
            slowest = max(slowest, _gpu_seconds(torch, index))
            ones = torch.ones(_GPU_SIZE, _GPU_SIZE, dtype=torch.bfloat16, device=f"cuda:{index}")
            if not bool((ones @ ones == _GPU_SIZE).all()):
                return f"GPU {index}: a product of ones is wrong"
            del ones
        self.figures["gpu_matmul_seconds"] = round(slowest, 6)
        return ""


class _Look:
    """A look for paths, some at a time, in threads that may hang; `absent` tells by number which were not seen."""

    def __init__(self, paths: Sequence[str], bound: float) -> None:
        self.absent: dict[int, bool] = {}
        self._total = len(paths)
        self._begun: dict[int, float] = {}
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        begun = time.monotonic()
        self._deadline = begun + bound
        for number in range(len(paths)):
            self._waiting.put(number)
        lookers = [threading.Thread(target=self._work, args=(paths,), daemon=True) for _ in range(_LOOKERS)]
        for looker in lookers:
            looker.start()
        for looker in lookers:
            looker.join(max(0.0, self._deadline - time.monotonic()))
        self.seconds = time.monotonic() - begun

    def answer(self) -> dict[str, object]:
        """Numbers of what is not there and of what is not known, as ranges, and one that did not answer."""
        found, begun, now = dict(self.absent), dict(self._begun), time.monotonic()
        absent, rest = _ranges({number for number, wrong in found.items() if wrong}, self._total)
        unknown, more = _ranges({*(number for number in range(self._total) if number not in found), *rest}, self._total)
        stuck = [number for number, since in begun.items() if number not in found and now - since > _SHORT]
        unknown += f",{min(more)}-{max(more)}" if more else ""
        return {"absent": absent, "unknown": unknown, "stuck": min(stuck, default=-1)}

    def _work(self, paths: Sequence[str]) -> None:
        with contextlib.suppress(queue.Empty):
            while time.monotonic() < self._deadline:
                number = self._waiting.get_nowait()
                self._begun[number] = time.monotonic()
                self.absent[number] = not _is_seen(Path(paths[number]))


def _is_seen(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.stat()
        return True
    # An NFS client may remember that there was none: it asks anew where a folder is opened.
    for folder in reversed(path.parents):
        with contextlib.suppress(OSError):
            os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    with contextlib.suppress(OSError):
        path.stat()
        return True
    return False


def _ranges(numbers: Collection[int], total: int) -> tuple[str, Sequence[int]]:
    """`0-3,7`, and, where they are too many for the line, all numbers from where it ends on."""
    ends: list[list[int]] = []
    for number in sorted(numbers):
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        elif len(ends) == _MOST_RANGES:
            return _written(ends), range(number, total)
        else:
            ends.append([number, number])
    return _written(ends), ()


def _written(ends: Sequence[Sequence[int]]) -> str:
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ends)


def _left(row: int, column: int) -> int:
    return row * column % 7 + 1_000_003 * (row + 1)


def _right(row: int, column: int) -> int:
    return (row + 2 * column) % 5 + 1_000_033 * (column + 1)


def _expected_total() -> int:
    """Of all elements of the product: sums over rows and columns first, another way to the same number."""
    columns = [sum(_left(row, column) for row in range(_SIZE)) for column in range(_SIZE)]
    rows = [sum(_right(row, column) for column in range(_SIZE)) for row in range(_SIZE)]
    return sum(map(operator.mul, columns, rows))


def _gpu_seconds(torch: Any, index: int) -> float:
    """The shortest time of a product of random signs: power, and so the clock, depends on the data."""
    device = f"cuda:{index}"
    signs = torch.randint(0, 2, (_GPU_SIZE, _GPU_SIZE), device=device).to(torch.bfloat16) * 2 - 1
    best = float("inf")
    for _ in range(_GPU_TRIES + 1):  # the first one also loads the library
        torch.cuda.synchronize(index)
        begun = time.perf_counter()
        signs @ signs
        torch.cuda.synchronize(index)
        best = min(best, time.perf_counter() - begun)
    return best


def main(words: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Entry of the program; ends at once, whatever still hangs."""
    seconds, gpus, host, port = words
    probe = Probe(float(seconds), int(gpus), host, int(port))
    probe.run()
    answer = {
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "time": time.time(),
        "failed": probe.failed,
        "passed": probe.passed,
        "figures": probe.figures,
        "notes": probe.notes,
        "paths": probe.paths,
    }
    with contextlib.suppress(OSError):
        os.write(1, f"{MARK}{json.dumps(answer)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main()
