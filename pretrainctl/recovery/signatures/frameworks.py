"""What Megatron, NeMo and DeepSpeed say of settings, and Slurm of a start, beyond `program`."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, root

__all__ = ["FRAMEWORKS"]

_MEGATRON = "NVIDIA/Megatron-LM: megatron/core/num_microbatches_calculator.py, datasets/indexed_dataset.py"

FRAMEWORKS: tuple[Signature, ...] = (
    root(
        "is not divisible by",
        r"batch size \S+ is not divisible by micro batch size|world[_ ]size \S+ is not divisible by",
        "config",
        "the batch or the ranks do not divide",
        f"{_MEGATRON}, parallel_state.py",
    ),
    *(
        root(clue, pattern, "config", "the settings are refused", source, start_only=True)
        for clue, pattern, source in (
            ("rror", r"\b\d+ validation errors? for [\w.\[\]]+\s*$", "pydantic/pydantic: ValidationError"),
            (
                "rror",
                r"\bomegaconf\.errors\.[A-Z]\w+|\bhydra\.errors\.[A-Z]\w+",
                "omry/omegaconf, facebookresearch/hydra",
            ),
            ("Could not override", r"^(?:\s*\d+: ?)?Could not override '", "facebookresearch/hydra"),
            ("rror", r"\byaml\.(?:scanner\.Scanner|parser\.Parser|constructor\.Constructor)Error", "yaml/pyyaml"),
            ("rror", r"keys are not used by the HfArgumentParser", "huggingface/transformers"),
        )
    ),
    root(
        "at the path prefix",
        r"\.idx and \.bin files cannot be found at the path prefix",
        "config",
        "a file that is named is not there",
        _MEGATRON,
        hint="see whether the data prefix is right, and can be read on a compute node",
    ),
    *(
        root(
            clue,
            r"Unable to JIT load the \w+ op due to|Installed CUDA version \S+ does not match the version torch was",
            "environment",
            "DeepSpeed's kernels cannot be built here",
            "deepspeedai/DeepSpeed: op_builder/builder.py",
        )
        for clue in ("rror", "CUDAMismatchException")
    ),
    *(
        root(
            clue,
            r"\w+ size changed, may indicate binary incompatibility|module compiled against ABI version",
            "environment",
            "packages do not fit each other",
            "numpy/numpy: numpy/__init__.pxd, numpy/core",
            start_only=True,
        )
        for clue in ("binary incompatibility", "against ABI version")
    ),
    root(
        "bad_alloc",
        r"(?:instance of '|what\(\):\s+|Error: )std::bad_alloc",
        "host_oom",
        "the host's memory ran out",
        "GNU libstdc++: std::bad_alloc::what",
        confidence="medium",
    ),
    root(
        "rror",
        r"srun: error: (?:tasks? [\d,-]+|Application) launch failed: |error: container_p_join: open failed",
        "boot_failure",
        "Slurm could not start the tasks",
        "SchedMD/slurm: src/srun; an interconnect plugin",
    ),
    *(
        root(
            "rolog failed",
            pattern,
            "boot_failure",
            "what the site runs before a job failed on a node",
            "SchedMD/slurm: src/slurmd/slurmd/req.c, src/slurmd/slurmstepd/task.c",
        )
        for pattern in (
            r"rror: Prolog failed on node (?P<node>[\w.-]+)",
            r"slurmd\[(?P<node>[\w.-]+)\]: error: .*\bprolog failed status=",
            r"rror: (?:\[?(?:job|Step|Job)\S* ?\S* |Task)[Pp]rolog failed status=",
        )
    ),
    root(
        "rror",
        r"sbatch: error: (?:QOS\w+|Assoc\w+|Max\w+)|"
        r"error: (?:Batch job submission failed|Unable to allocate resources): (?!.*(?:Socket timed out|"
        r"Unable to contact|temporarily|[Cc]onnection|[Cc]ommunication))",
        "config",
        "the site takes no such job, or no more of them, from this account",
        "SchedMD/slurm: src/common/slurm_protocol_defs.c, slurm_errno.c",
        weight="symptom",
        hint="`sacctmgr show assoc,qos`, `sinfo` and `squeue --me` say what is allowed, there and queued",
        survivable=True,
    ),
    root(
        "task_prolog: ",
        r"error: task_prolog: .*(?:failed|exit)",
        "boot_failure",
        "what the site runs before a job failed on a node",
        "SchedMD/slurm: src/slurmd/slurmstepd/task.c",
    ),
    root(
        "STEPD TERMINATED",
        r"\*\*\* (?:JOB|STEP) \S+ STEPD TERMINATED ON (?P<node>[\w.-]+) AT ",
        "node_failure",
        "a node cannot get rid of the job's processes",
        "SchedMD/slurm: src/slurmd/slurmstepd/req.c",
        weight="symptom",
        confidence="medium",
        survivable=True,
    ),
    root(
        "rror",
        r"CUDA_DEVICE_MAX_CONNECTIONS (?:must be|environment variable should|to be set)",
        "config",
        "a variable of the environment is not as the program wants it",
        "NVIDIA/Megatron-LM: megatron/training/arguments.py",
        start_only=True,
    ),
    root(
        "rror",
        r"but Transformers does not recognize this architecture",
        "environment",
        "a package is older than the model",
        "huggingface/transformers: models/auto/configuration_auto.py",
        start_only=True,
    ),
    *(
        root(
            clue,
            r"[Ee]xpired or invalid job \d+|srun: error: .*Invalid job id specified",
            "config",
            "the job that a step is to run in is over, or another one",
            "SchedMD/slurm: src/srun/libsrun/allocate.c",
            weight="symptom",
            confidence="medium",
            hint="in a shell that an earlier job left, unset SLURM_JOB_ID and SLURM_JOBID first",
            survivable=True,
        )
        for clue in ("xpired or invalid job", "nvalid job id")
    ),
    root(
        "unge",
        r"Munge (?:en|de)code failed",
        "boot_failure",
        "the node cannot prove who it is to Slurm",
        "SchedMD/slurm: src/plugins/auth/munge",
        confidence="medium",
    ),
)
