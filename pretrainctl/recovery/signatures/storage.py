"""What file systems and the files on them say: Lustre, NFS, disks, and checkpoints that were cut."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, root

__all__ = ["STORAGE"]

_KERNEL = "Linux: block/blk-core.c, fs/ext4/super.c, fs/xfs, net/sunrpc/clnt.c"
_GPFS = "IBM Storage Scale: the log of its daemon, messages 6027"
_PICKLE = "CPython: Modules/_pickle.c"
_SAFE = "safetensors/safetensors: src/tensor.rs; lyogavin/airllm#137"
_OTHER_MODEL = "pytorch/pytorch: torch/nn/modules/module.py, torch/distributed/checkpoint/default_planner.py"

STORAGE: tuple[Signature, ...] = (
    root(
        "was evicted by",
        r"This client was evicted by \S+; in progress operations",
        "filesystem",
        "the file server gave this node up",
        "lustre-release: lustre/ptlrpc/import.c",
        hint="it may pass by itself; see whether the path can be read from the node that is named",
    ),
    root(
        "was lost",
        r"Lustre: .*Connection to \S+ \(at \S+\) was lost; in progress operations",
        "filesystem",
        "a file server is away",
        "lustre-release: lustre/ptlrpc/import.c",
        weight="symptom",
        confidence="medium",
        survivable=True,
    ),
    root(
        "Lustre",
        r"Lustre(?:Error)?: .*(?:Request sent has (?:timed out|failed)|operation \w+ to node \S+ failed: rc = -)",
        "filesystem",
        "a file server is away",
        "lustre-release: lustre/ptlrpc/client.c",
        weight="symptom",
        confidence="medium",
        survivable=True,
    ),
    root("Disk failure", r"Disk failure\. +Volume \S+", "filesystem", "a disk of GPFS is away", _GPFS),
    root(
        "not responding",
        r"nfs: server \S+ not responding",
        "filesystem",
        "a file server is away",
        _KERNEL,
        weight="symptom",
        confidence="medium",
        survivable=True,
    ),
    *(
        root(
            clue,
            pattern,
            "filesystem",
            "GPFS gave this node up",
            _GPFS,
            hint="it may pass by itself; see whether the path can be read from the node that is named",
        )
        for clue, pattern in (
            ("Deadman Switch", r"Deadman Switch timer .*has expired; IOs in progress"),
            (
                "mmfs",
                r"mmfsd?: .*(?:Lost membership in|Unmounting file system|daemon is (?:\w+|shutting down) abnormally)",
            ),
        )
    ),
    root(
        "tale file handle",
        r": Stale file handle\b",
        "filesystem",
        "a file system did not answer",
        "errno(3) ESTALE, as shells and coreutils print it",
    ),
    *(
        root(clue, pattern, "filesystem", "a disk of the node is broken", _KERNEL)
        for clue, pattern in (
            ("I/O error", r"(?:blk_update_request: )?I/O error, dev \w+, sector|XFS \(\w+\): .*I/O error"),
            ("EXT4", r"EXT4-fs error \(device"),
        )
    ),
    # checkpoints
    root(
        "Unable to find latest file",
        r"Unable to find latest file at \S+",
        "checkpoint_incomplete",
        "no checkpoint was found to go on from",
        "deepspeedai/DeepSpeed: runtime/engine.py",
        weight="symptom",
        confidence="medium",
        hint="at a first start this is as it should be; at a later one it began anew: `pretrainctl checkpoints RUN` "
        "says what is there",
        survivable=True,
    ),
    root(
        "invalid load key",
        r"invalid load key, 'v'",
        "config",
        "a file holds the pointer of Git LFS and not its content",
        "git-lfs: docs/spec.md",
        hint="`git lfs pull` where the file came from",
    ),
    *(
        root(
            clue,
            pattern,
            "checkpoint_incomplete",
            "a file of the checkpoint was cut",
            source,
            confidence="medium",
            start_only=True,
        )
        for clue, pattern, source in (
            ("rror", r"\bEOFError: Ran out of input", _PICKLE),
            ("pickle data was truncated", r"pickle data was truncated", _PICKLE),
            ("invalid load key", r"UnpicklingError: invalid load key, '\\x00'", _PICKLE),
            (
                "rror",
                r"SafetensorError: .*(?:MetadataIncompleteBuffer|HeaderTooLarge|HeaderTooSmall|InvalidHeader)",
                _SAFE,
            ),
        )
    ),
    root(
        "rror",
        r"Error\(s\) in loading state_dict for |Missing key in checkpoint state_dict|"
        r"value from checkpoint \(.*\) is not equal to the|"
        r"loaded state dict (?:has a different number of|contains a) parameter group",
        "config",
        "the checkpoint is one of another model or other settings",
        f"{_OTHER_MODEL}; NVIDIA/Megatron-LM: megatron/training/checkpointing.py",
        hint="compare what was changed in the recipe since the checkpoint was saved",
    ),
)
