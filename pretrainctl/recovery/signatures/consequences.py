"""What is printed because something else went wrong: echoes, symptoms, and exceptions of any kind."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, echo, root
from pretrainctl.recovery.signatures.program import TRAINER

__all__ = ["CONSEQUENCES", "KILLED"]

KILLED = "SIGKILL ended a task, and nobody says why"
"""What srun's line means where it is the first bad one; below another it is what became of the others."""

_SLURM = "SchedMD/slurm: slurmstepd and srun"
_TORCH = "pytorch/pytorch: c10 and torch.distributed"
_NCCL = "NVIDIA/nccl: src/transport/net_ib.cc, src/misc/ibvwrap.cc; NVIDIA/nccl#905"
_NODE = r"(?P<node>[\w.-]+)"

CONSEQUENCES: tuple[Signature, ...] = (
    # what others print when a peer is gone, or has been told to go
    echo(
        "rror",
        r"NCCL error(?:| in: [^,]*)[:,] (?:remote process exited|unhandled system error)|nccl(?:Remote|System)Error",
        _NCCL,
    ),
    *(
        root(
            clue,
            pattern,
            "unknown",
            said,
            _NCCL,
            weight="error",
            confidence="low",
            hint="NCCL_DEBUG=WARN in the job's environment prints what it was",
            survivable=True,
        )
        for clue, pattern, said in (
            ("NCCL WARN", r"NCCL WARN (?:Cuda|HIP) failure", "NCCL met an error of the GPU's driver"),
            (
                "rror",
                r"NCCL error.*unhandled cuda error|ncclUnhandledCudaError",
                "NCCL met an error of CUDA, and does not say which",
            ),
            (
                "rror",
                r"NCCL error.*(?:invalid usage|invalid argument|internal error)|nccl(?:Invalid\w+|InternalError)",
                "NCCL refuses what it is asked, and does not say why",
            ),
        )
    ),
    root(
        "Fatal error in ",
        r"\(rank (?P<rank>\d+) in comm \d+\): Fatal error in \w+: ",
        "application_error",
        "a call of MPI failed",
        "pmodels/mpich: src/mpi/errhan/errutil.c",
        weight="error",
        confidence="low",
        survivable=True,
    ),
    echo("rror", r"NCCL communicator was aborted|ProcessGroup.* abort", _TORCH),
    root(
        "rror",
        r"Ranks? (?P<rank>\d+(?:, ?\d+)*) failed to pass monitoredBarrier",
        "collective_timeout",
        "a rank did not come to where all were to meet",
        "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
        weight="symptom",
        confidence="medium",
    ),
    root(
        "rror",
        r"received errors while waiting for send/recv from rank (?P<rank>\d+)",
        "collective_timeout",
        "a rank did not come to where all were to meet",
        "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
        weight="symptom",
        confidence="medium",
    ),
    echo("rror", r"Connection (?:reset|closed|refused|timed out)|Broken pipe|gloo/transport/tcp", "errno(3), gloo"),
    root(
        "rror",
        r"RendezvousTimeoutError\b",
        "collective_timeout",
        "not all nodes came to the start",
        "pytorch/pytorch: torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
        weight="symptom",
        confidence="medium",
        hint="look for the nodes that never started: their logs end early, or their node hangs",
        survivable=True,
    ),
    echo("rror", r"No route to host|Rendezvous(?:Connection|Closed)Error", _TORCH),
    *(
        echo(
            clue,
            r"failed to send a keep-alive heartbeat|torch\.distributed\.elastic|ChildFailedError|SignalException",
            _TORCH,
        )
        for clue in ("rror", "SignalException")
    ),
    echo("CANCELLED", r"DUE TO TASK FAILURE|DUE TO JOB REQUEUE", _SLURM),
    root(
        "CANCELLED",
        r"\*\*\* JOB \S+ ON \S+ CANCELLED AT",
        "user_cancel",
        "the job was cancelled, by whom is not said",
        _SLURM,
        weight="symptom",
        confidence="low",
        hint="`sacct -P -j JOB -o State` says whose uid it was",
    ),
    echo("CANCELLED", r"\*\*\* STEP \S+ ON \S+ CANCELLED AT", _SLURM),
    root(
        "rror",
        rf"error: {_NODE}: task (?P<rank>\d+): (?:Segmentation fault|Bus error|Floating point exception)",
        "application_error",
        "a rank crashed",
        _SLURM,
        weight="error",
        confidence="medium",
    ),
    root(
        "rror",
        r"Fatal Python error: ",
        "application_error",
        "the interpreter crashed",
        "CPython: faulthandler",
        weight="error",
        confidence="medium",
    ),
    root(
        "rror",
        rf"error: {_NODE}: tasks? (?P<rank>[\d,-]+): Killed",
        "unknown",
        KILLED,
        _SLURM,
        weight="echo",
        confidence="low",
        hint="most often the node's memory ran out: see `sacct -j JOB -o JobID,State,MaxRSS`, or ask the site",
    ),
    echo("rror", r"error: \S+: tasks? [\d,-]+: (?:Terminated|Exited|Aborted|Segmentation|Bus error)", _SLURM),
    *(
        root(
            clue,
            pattern,
            "application_error",
            "a rank crashed",
            source,
            weight="error",
            confidence="medium",
            hint=hint,
        )
        for clue, pattern, source, hint in (
            (
                "Bus error",
                r"\bBus error(?:\s+\(core dumped\)|$| +\S*python)",
                "GNU bash, strsignal(SIGBUS)",
                "a /dev/shm that is full, or a file that was cut while it was mapped, looks like this",
            ),
            ("core dumped", r"(?:Segmentation fault|Floating point exception)\s+\(core dumped\)", "GNU bash", ""),
        )
    ),
    echo("exitcode", r"\bexitcode *: -(?:6|15)\b", "pytorch/pytorch: torch/distributed/elastic"),
    echo(
        "exits with return code",
        r"exits with return code = -?[1-9]",
        "deepspeedai/DeepSpeed: launcher/launch.py",
    ),
    echo("core dumped", r"\bAborted\s+\(core dumped\)", "GNU bash"),
    echo("KeyboardInterrupt", r"^(?:\S+: ?)*KeyboardInterrupt\s*$", "CPython: the last line of a traceback"),
    echo("rror", r"FAILED \(non-zero exit code|srun: error: Timed out waiting for job step|MESSAGE_TASK_EXIT", _SLURM),
    # ranks that waited
    root(
        "atchdog",
        r"Watchdog caught collective operation timeout",
        "collective_timeout",
        "ranks waited in vain for others",
        "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        weight="symptom",
        confidence="medium",
    ),
    *(
        root(
            clue,
            rf"(?:\[rank(?P<rank>\d+)\]: ?.*)?{said}",
            "collective_timeout",
            "the watchdog of a rank hangs itself, most likely in a call to CUDA or NCCL",
            "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, its heartbeat monitor",
            weight="symptom",
            confidence="medium",
        )
        for clue, said in (
            ("Heartbeat monitor", r"Heartbeat monitor timed out!"),
            (
                "atchdog",
                r"(?:Terminating the process .* due to ProcessGroupNCCL watchdog hang|NCCL's watchdog got stuck for)",
            ),
        )
    ),
    root(
        "dump signal",
        r"Received a dump signal due to a collective timeout from",
        "collective_timeout",
        "ranks waited in vain for others",
        "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        weight="symptom",
        confidence="medium",
    ),
    echo("dump debug info", r"Terminating the process after attempting to dump debug info", _TORCH),
    echo("atchdog", r"watchdog", _TORCH),
    # the last resort, after all echoes
    *(
        root(
            clue,
            rf"(?:^|[\s\]:])(?:[A-Za-z_]\w*\.)*{name}: \S",
            "application_error",
            "the program raised an error",
            "CPython: the last line of a traceback",
            weight="error",
            confidence="medium",
        )
        for clue, name in (
            ("rror", r"[A-Z]\w*Error"),
            ("xception", r"(?:[A-Z]\w*)?Exception"),
            ("BackendCompilerFailed", r"BackendCompilerFailed"),
        )
    ),
    *(
        root(
            clue,
            rf"^(?:\s*[\w.-]+: ?)?(?:\[[^\]]*\]:? ?)*(?:[A-Za-z_]\w*\.)*(?:{name})\s*$",
            "application_error",
            "the program raised an error that says no more",
            "CPython: the last line of a traceback",
            weight="error",
            confidence="medium",
        )
        for clue, name in (
            ("rror", r"[A-Z]\w*Error"),
            ("xception", r"(?:[A-Z]\w*)?Exception"),
            ("StopIteration", r"StopIteration"),
        )
    ),
    root(
        "rror",
        r"^(?:\s*\d+: ?)?rank (?P<rank>\d+): error: \S",
        "application_error",
        "the program ended with an error of its own",
        TRAINER,
        weight="error",
        confidence="medium",
    ),
)
