"""What Slurm, the kernel, the GPUs, the network and the file systems say."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import CUDA_SAYS, Signature, root
from pretrainctl.recovery.signatures.network import PEER

__all__ = ["MACHINE", "NOT_WRITTEN"]

NOT_WRITTEN = "a file could not be written"
"""What entries mean that do not say why: a full file system or quota does, wherever it is told."""

_SLURM = "SchedMD/slurm: slurmstepd and srun"
_ERRNO = "errno(3), as Python prints it"
_GO = "errno(3), as Go prints it: apptainer, container runtimes"
_TORCH = "pytorch/pytorch: c10 and torch.distributed"
_NCCL = "NVIDIA/nccl: src/transport/net_ib.cc, src/misc/ibvwrap.cc; NVIDIA/nccl#905"
_WRITER = "pytorch/pytorch: caffe2/serialize/inline_container.cc; numpy, safetensors, GNU libstdc++"
_NODE = r"(?P<node>[\w.-]+)"
_NODES = r"(?P<node>[\w.-]+(?:\[[\d,-]+\])?(?:,[\w.-]+(?:\[[\d,-]+\])?)*)"
_SHM = "fewer loader workers, or a larger /dev/shm on the node or in the container"
_CHECK = (
    "the lines `Assertion ... failed` above it say which check: srcIndex, or an index out of bounds, is most often a "
    "token beyond the vocabulary of the model, `t < n_classes` a label beyond it"
)
_SPACE = "see which file system it is: home, scratch, or /tmp of one node"

MACHINE: tuple[Signature, ...] = (
    # Slurm
    root("CANCELLED", r"DUE TO TIME LIMIT", "time_limit", "the time limit was reached", _SLURM),
    root("CANCELLED", r"DUE TO PREEMPTION", "preempted", "a job of higher priority took the nodes", _SLURM),
    root("rror", rf"srun: error: Node failure on {_NODES}", "node_failure", "Slurm says that a node failed", _SLURM),
    root(
        "rror",
        r"srun: error: Unable to create step for job",
        "boot_failure",
        "Slurm could not begin the step",
        _SLURM,
        hint="it may pass after a pause: Slurm may still be ending the step before; if it comes again, the step asks "
        "for more memory, CPUs or GPUs than the job has",
    ),
    root("CANCELLED", r"DUE TO NODE FAILURE", "node_failure", "Slurm says that a node failed", _SLURM),
    root(
        "rror",
        rf"\*\*\* (?:STEP|JOB) \S+ ON {_NODE} UNCORRECTABLE MEMORY ERROR",
        "node_failure",
        "the node's memory is broken",
        _SLURM,
    ),
    root(
        "rror",
        rf"slurmstepd(?:-{_NODE})?: error: execve\(\): \S*slurmd\S*: No such file",
        "node_failure",
        "a node's own spool is broken",
        _SLURM,
    ),
    root("rror", r"oom[-_]kill event", "host_oom", "the host's memory ran out", _SLURM),
    root("rror", rf"error: {_NODE}: tasks? [\d,-]+: Out Of Memory", "host_oom", "the host's memory ran out", _SLURM),
    root("emory", r"Out of memory: Killed process", "host_oom", "the host's memory ran out", "Linux: mm/oom_kill.c"),
    root(
        "emory",
        r"slurmstepd\S*: error: .*[Ee]xceeded (?:job |step )?memory limit(?! at some point)",
        "host_oom",
        "the host's memory ran out",
        _SLURM,
    ),
    root(
        "emory",
        r"killed due to the node running low on memory",
        "host_oom",
        "the host's memory ran out",
        "ray-project/ray: OutOfMemoryError",
    ),
    root("emory", r"Memory cgroup out of memory", "host_oom", "the host's memory ran out", "Linux: mm/oom_kill.c"),
    root(
        "rror",
        r"DataLoader worker \(pid\S* \d+\) is killed by signal: Killed",
        "host_oom",
        "a loader worker was killed, most likely for the host's memory",
        _TORCH,
        confidence="medium",
    ),
    root(
        "rror",
        r"DataLoader worker .* is killed by signal: Bus error|bus error encountered in worker",
        "config",
        "shared memory is used up",
        _TORCH,
        hint=_SHM,
    ),
    *(
        root(
            word,
            rf"\b{word}",
            kind,
            "Slurm's accounting says so",
            "SchedMD/slurm: job states, as sacct prints them",
            weight="symptom",
        )
        for word, kind in (("OUT_OF_ME", "host_oom"), ("NODE_FAIL", "node_failure"), ("BOOT_FAIL", "boot_failure"))
    ),
    # GPUs
    *(
        root(
            clue,
            rf"(?:{CUDA_SAYS})?(?:uncorrectable (?:NVLink|ECC) error|hardware stack error|"
            r"Invalid access of peer GPU memory over nvlink or a hardware error)",
            "gpu_hardware",
            "a GPU's memory or link is broken",
            "NVIDIA CUDA runtime: cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained",
        )
        for clue in ("uncorrectable ", "hardware stack error", "access of peer GPU memory")
    ),
    *(
        root(
            clue,
            rf"{CUDA_SAYS}(?:unknown error|unspecified launch failure|the launch timed out)|"
            r"CUDA unknown error - this may be due to|CUDAError: unknown error",
            "gpu_hardware",
            "a GPU failed without saying why: its hardware is a suspect",
            _TORCH,
            confidence="low",
            hint="leave the node out if it comes a second time there",
        )
        for clue in ("unknown error", "unspecified launch failure", "the launch timed out")
    ),
    root(
        "emory",
        r"Memory access fault by GPU node",
        "application_error",
        "a kernel read memory it may not",
        "ROCm: ROCR-Runtime",
        confidence="medium",
    ),
    *(
        root(
            clue,
            rf"{CUDA_SAYS}(?:an illegal (?:memory access|instruction)|misaligned address|invalid program counter)",
            "application_error",
            "a kernel read memory it may not",
            f"{_TORCH}; NVIDIA/nccl: src/include/checks.h",
            confidence="medium",
        )
        for clue in ("an illegal ", "misaligned address", "invalid program counter")
    ),
    root(
        "side assert",
        rf"{CUDA_SAYS}device-side assert",
        "application_error",
        "a check in a kernel failed",
        _TORCH,
        confidence="medium",
        hint=_CHECK,
    ),
    root(
        "Assertion `",
        r"block: \[[\d, ]+\], thread: \[[\d, ]+\] Assertion `.* failed",
        "application_error",
        "a check in a kernel failed",
        "pytorch/pytorch: CUDA_KERNEL_ASSERT, as the CUDA runtime prints it",
        weight="symptom",
        confidence="medium",
        hint=_CHECK,
        survivable=True,
    ),
    *(
        root(
            clue,
            r"(?:CUDA|HIP) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA (?:driver )?error: out of memory|"
            r"(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|"
            r"HSA_STATUS_ERROR_OUT_OF_RESOURCES|cudaErrorMemoryAllocation|cudaMalloc failed",
            "gpu_oom",
            "the GPU's memory ran out",
            f"{_TORCH}; NVIDIA cuBLAS, cuDNN; ROCm: ROCR-Runtime",
        )
        for clue in ("emory", "ALLOC_FAILED", "OUT_OF_RESOURCES", "cudaMalloc failed")
    ),
    # network
    root(
        "NCCL WARN",
        r"NET/IB ?: (?:\S+:\d+ )?(?:Got async (?:fatal )?event ?: port error|async fatal event)",
        "fabric",
        "a network port failed",
        _NCCL,
    ),
    root(
        "NCCL WARN",
        r"Got completion from peer (?:(?P<node>[A-Za-z][\w.-]*)(?=<)|\S+)\S* with (?:error|status)[ =]",
        "fabric",
        "a transfer between nodes failed",
        _NCCL,
        weight="symptom",
        confidence="low",
        hint=PEER,
    ),
    root(
        "UCX",
        r"UCX +ERROR .*(?:[Tt]imeout|[Uu]nreachable)",
        "fabric",
        "a transfer between nodes failed",
        "openucx/ucx: ib_mlx5_log.c",
        weight="symptom",
        confidence="medium",
    ),
    # files, space and memory of the machine
    root(
        "No space",
        r"No space left on device.*/dev/shm|/dev/shm.*No space left on device",
        "config",
        "shared memory is used up",
        _ERRNO,
        hint=_SHM,
    ),
    root(
        "No space", r"No space left on device", "filesystem", "a file system is full", _ERRNO, lasting=True, hint=_SPACE
    ),
    root(
        "no space left on",
        r"no space left on device",
        "filesystem",
        "a file system is full",
        _GO,
        lasting=True,
        hint=_SPACE,
    ),
    root("rror", r"\[Errno 28\]", "filesystem", "a file system is full", _ERRNO, lasting=True, hint=_SPACE),
    *(
        root(
            clue,
            r"[Dd]isk quota exceeded|(?<!API )(?<!rate )(?<!\bRate )[Qq]uota exceeded(?!.*\b429\b)",
            "quota",
            "a quota is used up",
            _ERRNO,
        )
        for clue in ("quota", "Quota exceeded")
    ),
    root("rror", r"\[Errno 122\]", "quota", "a quota is used up", _ERRNO),
    root("emory", r"Cannot allocate memory", "host_oom", "the host's memory ran out", _ERRNO, confidence="medium"),
    *(
        root(
            clue,
            r"\bMemoryError\b|DefaultCPUAllocator: (?:can't|not enough)",
            "host_oom",
            "the host's memory ran out",
            "CPython, pytorch/pytorch: c10/core/impl/alloc_cpu.cpp",
        )
        for clue in ("rror", "DefaultCPUAllocator")
    ),
    *(
        root(
            clue,
            r"\[Errno 24\]|Too many open files",
            "environment",
            "too many files are open at once",
            _ERRNO,
            hint="raise the limit (`ulimit -n`), or use fewer loader workers",
        )
        for clue in ("rror", "Too many open files")
    ),
    root(
        "rror",
        r"\[Errno (?:1|13)\]|PermissionError:",
        "environment",
        "a permission is missing",
        _ERRNO,
        start_only=True,
        hint="see whose the path is, and whether it is a cache that belongs elsewhere",
    ),
    root(
        "rror",
        r"\[Errno (?:1|13)\]|PermissionError:",
        "filesystem",
        "a permission that was there is missing",
        _ERRNO,
        hint="see who changed the path, or whether its file system answers",
    ),
    *(
        root(
            clue,
            r"\[Errno 30\]|: Read-only file system\b",
            "filesystem",
            "a file system is read-only",
            _ERRNO,
            hint="leave the node out if it is the only one that says so",
        )
        for clue in ("rror", "only file system")
    ),
    *(
        root(
            clue,
            r"\[Errno (?:5|11|107|108|110|116|121)\] |Stale file handle|Input/output error|"
            r"Transport endpoint is not connected|Cannot send after transport endpoint shutdown|Remote I/O error",
            "filesystem",
            "a file system did not answer",
            f"{_ERRNO}, and shells and coreutils of the same",
        )
        for clue in ("rror", "ransport endpoint")
    ),
    root(
        "could not be written",
        r"error: \S.* could not be written: ",
        "filesystem",
        NOT_WRITTEN,
        "pretrainctl: trainer/checkpoint.py",
    ),
    *(
        root(clue, pattern, "filesystem", NOT_WRITTEN, _WRITER)
        for clue, pattern in (
            ("PytorchStreamWriter", r"PytorchStreamWriter failed writing"),
            ("unexpected pos", r"inline_container\.cc.*unexpected pos \d+ vs \d+"),
            ("iostream error", r"\b(?:basic_ios::clear|ios_base::clear|RuntimeError)\b.*: iostream error"),
            ("requested and", r"OSError: \d+ requested and \d+ written"),
            ("rror", r"SafetensorError: Error while serializing"),
        )
    ),
)
