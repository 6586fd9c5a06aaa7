"""How processes and nodes die without an exception: by a signal, in the C library's hands, by the kernel's own word."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, root

__all__ = ["CRASHES"]

_LABEL = r"^(?:\s*\d+: ?)?"
_ELASTIC = "pytorch/pytorch: torch/distributed/elastic/multiprocessing/api.py, errors/__init__.py"
_GLIBC = "GNU libc: malloc/malloc.c, malloc_printerr"
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
        root(clue, pattern, "node_failure", "the kernel of a node gave up", _LINUX)
        for clue, pattern in (
            ("Kernel panic", r"\bKernel panic - not syncing"),
            ("xception", r"\bMachine Check Exception: +\w+ Bank \d"),
        )
    ),
)
