"""What a first start on a machine runs into: its processor, containers, modules, network, limits and caches.

What a program may survive (a download that is tried again) is a symptom: any root explains more.
"""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, root

__all__ = ["SURROUNDINGS"]

_TORCH = "pytorch/pytorch: c10 and torch.distributed"
_SLURM = "SchedMD/slurm: slurmstepd and srun"
_NCCL = "NVIDIA/nccl: src/init.cc, src/bootstrap.cc, src/misc/shmutils.cc, src/misc/ibvwrap.cc"
_HUB = "huggingface/transformers, huggingface/huggingface_hub, urllib3, requests: the exception lines"
_ARCHITECTURE = "it was built for another processor (x86_64 or aarch64): build or install it on a node of this kind"
_OFFLINE = (
    "compute nodes have no internet: download on a login node first, then set HF_HUB_OFFLINE=1 and WANDB_MODE=offline"
)
_SHM = "fewer loader workers, or a larger /dev/shm on the node or in the container"
_CACHE = "give each node a cache of its own: TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR and TORCH_EXTENSIONS_DIR"
_CALM = r"^(?!.*(?:[Rr]etrying|WARNING|[Ww]arning:))"

SURROUNDINGS: tuple[Signature, ...] = (
    # processor, container, modules
    root(
        "xec format error",
        r"[Ee]xec format error",
        "environment",
        "a program is built for another processor",
        "Linux: errno(3) ENOEXEC, as bash, Slurm and Python print it",
        hint=_ARCHITECTURE,
    ),
    root(
        "could not run on the host",
        r"image's architecture \(\w+\) could not run on the host's",
        "environment",
        "the container is built for another processor",
        "apptainer/apptainer: pkg/image/sif.go",
        hint=_ARCHITECTURE,
    ),
    root(
        "FATAL: ",
        r"FATAL: +(?!.*(?:no space left|quota exceeded))(?:While .*: )?"
        r"(?:could not open image|container creation failed|[Uu]nable to handle \S+ uri)",
        "environment",
        "the container did not start",
        "apptainer/apptainer and sylabs/singularity",
        hint="see whether the image and each bound path are there on a compute node",
    ),
    root(
        "rror",
        r"error: pyxis: (?:couldn't start container|failed to import docker image|container start failed)",
        "environment",
        "the container did not start",
        "NVIDIA/pyxis#61, NVIDIA/pyxis#127",
    ),
    root(
        "Illegal instruction",
        r"Illegal instruction",
        "environment",
        "a program uses instructions that this processor has not",
        "GNU libc: strsignal(SIGILL), as bash and srun print it",
        confidence="medium",
        hint=_ARCHITECTURE,
    ),
    root(
        "rror",
        r"OSError: lib\S+: cannot open shared object|symbol lookup error: |"
        r"OSError: \S+\.so\S*: (?:cannot open shared object|undefined symbol)|Could not load library lib\S+ Error:",
        "environment",
        "a library is missing or does not fit",
        "glibc: dl-error; NVIDIA cuDNN",
    ),
    root(
        "supported wheel",
        r"is not a supported wheel on this platform",
        "environment",
        "a package is built for another processor or Python",
        "pypa/pip",
        weight="symptom",
        hint=_ARCHITECTURE,
        survivable=True,
    ),
    root(
        "rror",
        r"Torch not compiled with CUDA enabled|Failed to find C compiler|Ninja is required to load C\+\+|"
        r"CUDA_HOME environment variable is not set|Error building extension|"
        r"detected CUDA version \S+ mismatches the version|unsupported toolchain",
        "environment",
        "PyTorch, its compiler or CUDA do not fit each other",
        "pytorch/pytorch: torch/cuda/__init__.py, torch/utils/cpp_extension.py; triton-lang/triton",
    ),
    *(
        root(
            clue,
            pattern,
            "environment",
            "a module cannot be loaded",
            "TACC/Lmod, envmodules/modules",
            weight="symptom",
            start_only=True,
            survivable=True,
        )
        for clue, pattern in (
            ("rror", r"Lmod has detected the following error"),
            ("modulefile for", r"Unable to locate a modulefile for"),
        )
    ),
    root(
        "rror",
        r"slurmstepd\S*: error: execve\(\): (?!\S*slurmd)|annot find mpi plugin for|couldn't chdir to",
        "environment",
        "Slurm cannot start the program as it is asked to",
        _SLURM,
        weight="symptom",
        hint="see whether program, folder and MPI type are there on a compute node, and executable",
        survivable=True,
    ),
    root(
        "can't open file",
        r"can't open file .*\[Errno (?:2|13)\]",
        "config",
        "the program's file cannot be opened",
        "CPython: Modules/main.c",
    ),
    root(
        "Permission denied",
        r"(?:cannot create directory|line \d+: ).*: Permission denied$|Permission denied \([\w,-]*publickey",
        "environment",
        "a permission is missing",
        "GNU bash and coreutils, OpenSSH",
        weight="symptom",
        start_only=True,
        hint="see whose the path is; programs go to other nodes by srun, not by ssh",
        survivable=True,
    ),
    # Slurm refuses for good
    root(
        "rror",
        r"Unable to create step for job \d+: (?:More processors requested|Requested node configuration)|"
        r"Unable to satisfy cpu bind request",
        "config",
        "the step asks for more than its job has",
        _SLURM,
        hint="ask sbatch for what srun needs; in a job that was submitted from a job, unset SLURM_CPU_BIND first",
    ),
    root(
        "mutually exclusive",
        r"SLURM_MEM_PER_\w+.* are mutually exclusive",
        "config",
        "two ways to ask for memory meet",
        _SLURM,
        hint="unset SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU and SLURM_MEM_PER_NODE before srun",
    ),
    root(
        "rror",
        r"srun: error: Task launch for \S+ failed on node (?P<node>[\w.-]+):",
        "boot_failure",
        "a node did not start its tasks",
        _SLURM,
    ),
    # no internet
    *(
        root(
            clue,
            _CALM + r"(?=.*(?:Max retries exceeded with url|couldn't connect to '?https?:|"
            r"Failed to establish a new connection|NameResolutionError|<urlopen error|Couldn't reach '|"
            r"Can't load \w+ for '|cannot find the requested files in|LocalEntryNotFoundError: |"
            r"OfflineModeIsEnabled: |outgoing traffic has been disabled))",
            "environment",
            "something is to be downloaded, and cannot be",
            _HUB,
            weight="symptom",
            start_only=True,
            hint=_OFFLINE,
        )
        for clue in ("rror", "OfflineModeIsEnabled")
    ),
    *(
        root(
            clue,
            _CALM + pattern,
            "environment",
            "the internet cannot be reached",
            "git, curl, pypa/pip",
            weight="symptom",
            start_only=True,
            hint=_OFFLINE,
            survivable=True,
        )
        for clue, pattern in (
            ("matching distribution", r".*No matching distribution found for"),
            ("unable to access", r".*fatal: unable to access '?https?:"),
            ("Could not resolve", r".*curl: \(\d+\) Could not resolve"),
        )
    ),
    root(
        "rror",
        r"wandb\S*(?:UsageError: api_key not configured|CommError: )",
        "environment",
        "W&B cannot be reached or knows no key",
        "wandb/wandb: wandb/errors, wandb/sdk/wandb_init.py",
        weight="symptom",
        start_only=True,
        hint="WANDB_MODE=offline in the job, `wandb sync` from a login node",
    ),
    root(
        "rror",
        r"HFValidationError: Repo id must|does not appear to have a file named",
        "config",
        "a local path that is not there is taken for a name on the hub",
        _HUB,
        start_only=True,
    ),
    root(
        "MASTER_",
        r"environment variable MASTER_(?:ADDR|PORT) expected, but not set",
        "config",
        "the ranks are not told where to meet",
        "pytorch/pytorch: torch/distributed/rendezvous.py",
    ),
    # ranks that never came
    root(
        "clients joined",
        r"[Tt]imed out after \d+ seconds waiting for clients",
        "collective_timeout",
        "not all ranks came to the start",
        "pytorch/pytorch: torch/csrc/distributed/c10d/TCPStore.cpp",
        weight="symptom",
        confidence="medium",
        hint="look for the ranks that never started: their logs end early, or their node hangs",
    ),
    root(
        "store based barrier",
        r"Timed out initializing process group in store based barrier on rank",
        "collective_timeout",
        "not all ranks came to the start",
        "pytorch/pytorch: torch/distributed/distributed_c10d.py",
        weight="symptom",
        confidence="medium",
        hint="look for the ranks that never started: their logs end early, or their node hangs",
    ),
    root(
        "client socket has timed out",
        r"client socket has timed out after \d+ ?m?s while trying to connect",
        "collective_timeout",
        "rank 0 could not be reached at the start",
        "pytorch/pytorch: torch/csrc/distributed/c10d/socket.cpp",
        weight="symptom",
        confidence="medium",
        hint="see whether rank 0 started, and whether MASTER_ADDR is its node",
    ),
    # NCCL
    root("emory", r"Cuda failure (?:\d+ )?'out of memory'", "gpu_oom", "the GPU's memory ran out", _NCCL),
    root(
        "NCCL WARN",
        r"(?:no socket interface found|Error: network [\w ]+ not found|Mismatched NCCL version detected|"
        r"Cuda failure (?:\d+ )?'(?:CUDA driver version|no kernel image|invalid device function))",
        "environment",
        "NCCL does not fit the machine",
        _NCCL,
        hint="compare NCCL_SOCKET_IFNAME, NCCL_NET and the version of NCCL on all nodes",
    ),
    root(
        "Duplicate GPU detected",
        r"Duplicate GPU detected",
        "config",
        "two ranks use the same GPU",
        _NCCL,
        hint="set the device by the local rank, and start as many ranks a node as it has GPUs",
    ),
    root(
        "rror",
        r"Error(?: while creating shared memory segment|: failed to extend) /dev/shm/",
        "config",
        "shared memory is used up",
        _NCCL,
        hint=_SHM,
    ),
    root(
        "emory",
        r"Call to ibv_\w+ failed.* Cannot allocate memory",
        "environment",
        "memory cannot be locked for the network",
        _NCCL,
        hint="the job needs `ulimit -l unlimited`; ask the site",
    ),
    # limits and caches
    root(
        "Resource temporarily unavailable",
        r"pthread_create failed.*Resource temporarily|Thread creation failed: Resource temporarily|fork: .*temporarily",
        "environment",
        "no more threads or processes may be started",
        "OpenBLAS, GNU libgomp, GNU bash",
        weight="symptom",
        hint="raise `ulimit -u`, lower OMP_NUM_THREADS, or do not run it on a login node",
        survivable=True,
    ),
    root(
        "rror",
        r"RuntimeError: can't start new thread|AF_UNIX path too long",
        "environment",
        "a limit of the machine is met",
        "CPython",
        hint="raise `ulimit -u`, lower OMP_NUM_THREADS; for the path, a shorter TMPDIR",
    ),
    root(
        "rror",
        r"\[Errno (?:37|524)\]",
        "environment",
        "the file system takes no locks",
        "errno(3), as Python prints it",
        hint="put caches (HF_HOME, TRITON_CACHE_DIR) where files can be locked; HDF5_USE_FILE_LOCKING=FALSE",
    ),
    root(
        "file lock",
        r"Timeout: The file lock '.*' could not be acquired",
        "filesystem",
        "a cache is locked by somebody else",
        "tox-dev/filelock: the text of Timeout",
        hint="see who holds the lock, or give the job a cache of its own (HF_HOME)",
    ),
    root(
        "rror",
        r"Error: \[Errno (?:2|39)\].*(?:\.triton/|triton.cache|torchinductor_|torch_extensions/)",
        "filesystem",
        "several ranks use one cache of compiled code",
        "triton-lang/triton: python/triton/runtime/cache.py; pytorch/pytorch: torch/_inductor",
        hint=_CACHE,
    ),
)
