"""How processes and nodes die without an exception: by a signal, in the C library's hands, by the kernel's own word."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, root

__all__ = ["CRASHES"]

_LABEL = r"^(?:\s*\d+: ?)?"
_ELASTIC = "pytorch/pytorch: torch/distributed/elastic/multiprocessing/api.py, errors/__init__.py"
_LAUNCH = "deepspeedai/DeepSpeed: launcher/launch.py"
_PYTHON = "CPython: subprocess.CalledProcessError; pytorch/pytorch: torch/multiprocessing/spawn.py"
_MPI = "open-mpi/ompi: orte/tools/orterun/help-orterun.txt"
_HYDRA = "pmodels/mpich: src/pm/hydra"
_GLIBC = "GNU libc: malloc/malloc.c, malloc_printerr"
_STUCK = "a process waits for its node's disk, file system or driver"
_HOST = r"(?:(?P<node>[a-z][\w.-]*) kernel: .*)?"
_LINUX = "Linux: kernel/panic.c, arch/x86/kernel/cpu/mce"

CRASHES: tuple[Signature, ...] = (
    *(
        root(
            clue,
            pattern,
            "unknown",
            "SIGKILL ended the program, and nobody says why",
            source,
            weight="error",
            confidence="low",
            hint="most often the node's memory ran out: see `sacct -j JOB -o JobID,State,MaxRSS`, or ask the site",
            survivable=True,
        )
        for clue, pattern, source in (
            ("Killed", rf"{_LABEL}(?:\S+: line \d+: +\d+ Killed +\S|Killed\s*$)", "GNU bash: strsignal(SIGKILL)"),
            ("exitcode", r"\bexitcode *: -9\b", _ELASTIC),
            ("exits with return code", r"exits with return code = -9\b", _LAUNCH),
            ("SIGKILL", r"died with <Signals\.SIGKILL|terminated with signal SIGKILL", _PYTHON),
            (
                "noticed that process rank",
                r"process rank (?P<rank>\d+) .*on node (?P<node>\S+) exited on signal 9\b",
                _MPI,
            ),
            ("KILLED BY SIGNAL", r"KILLED BY SIGNAL: 9\b", _HYDRA),
        )
    ),
    *(
        root(
            clue,
            pattern,
            "application_error",
            "a rank crashed",
            source,
            weight="error",
            confidence="medium",
        )
        for clue, pattern, source in (
            ("exitcode", r"\bexitcode *: -(?:4|7|8|11)\b", _ELASTIC),
            ("exits with return code", r"exits with return code = -(?:4|7|8|11)\b", _LAUNCH),
            *(
                (clue, rf"(?:died with <Signals\.|terminated with signal ){clue}", _PYTHON)
                for clue in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
            ),
            (
                "noticed that process rank",
                r"process rank (?P<rank>\d+) .*on node (?P<node>\S+) exited on signal (?:4|7|8|11)\b",
                _MPI,
            ),
            ("KILLED BY SIGNAL", r"KILLED BY SIGNAL: (?:4|7|8|11)\b", _HYDRA),
            (
                "Signal: ",
                r"\] Signal: (?:Segmentation fault|Bus error|Floating point exception) \(",
                "open-mpi/ompi: opal/util/stacktrace.c",
            ),
            ("Caught signal", r"Caught signal (?:4|7|8|11) \(", "openucx/ucx: src/ucs/debug/debug.c"),
            ("Segfault encountered", r"!+ Segfault encountered !+", "pytorch/pytorch: c10/util/signal_handler.cpp"),
            (
                "corrupt",
                rf"{_LABEL}(?:double free or corruption|corrupted (?:size vs|double-linked)|malloc\(\): .*corrupted)",
                _GLIBC,
            ),
            ("invalid pointer", rf"{_LABEL}(?:free|munmap_chunk)\(\): invalid pointer", _GLIBC),
            ("invalid next size", rf"{_LABEL}free\(\): invalid next size", _GLIBC),
        )
    ),
    *(
        root(clue, rf"{_HOST}{pattern}", "node_failure", "the kernel of a node gave up", _LINUX)
        for clue, pattern in (
            ("Kernel panic", r"\bKernel panic - not syncing"),
            ("xception", r"\bMachine Check Exception: +\w+ Bank \d"),
        )
    ),
    *(
        root(
            clue, rf"{_HOST}{pattern}", "node_failure", "the node's memory is broken", f"{_LINUX}; mm/memory-failure.c"
        )
        for clue, pattern in (
            ("hardware memory corruption", r"Killing \S+ due to hardware memory corruption"),
            ("hardware memory error", r"Uncorrected hardware memory error in "),
        )
    ),
    *(
        root(
            clue,
            rf"{_HOST}{pattern}",
            kind,
            said,
            f"{_LINUX}; kernel/watchdog.c, hung_task.c",
            weight="symptom",
            confidence="low",
            survivable=True,
        )
        for clue, pattern, kind, said in (
            (
                "lockup",
                r"\bBUG: soft lockup - CPU#\d+ stuck for",
                "node_failure",
                "a processor of the node stands still",
            ),
            ("blocked for more than", r"INFO: task \S+ blocked for more than \d+ seconds", "filesystem", _STUCK),
        )
    ),
    root(
        "segfault at",
        r"\bpython[\d.]*\[\d+\]: segfault at ",
        "application_error",
        "a rank crashed",
        "Linux: arch/x86/mm/fault.c",
        weight="error",
        confidence="medium",
    ),
)
