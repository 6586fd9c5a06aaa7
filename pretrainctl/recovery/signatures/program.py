"""What the training program, its framework and its start say."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, root

__all__ = ["LOSS", "LOSS_IS_NAN", "PROGRAM", "SAYS_LOSS_IS_NAN", "TRAINER"]

TRAINER = "pretrainctl: trainer/__main__.py, which prints `rank N: error: ...` and `rank N: hint: ...`"

_ERRNO = "errno(3), as Python prints it"
_TORCH = "pytorch/pytorch: c10 and torch.distributed"
_DEEPSPEED = "deepspeedai/DeepSpeed: runtime/engine.py, runtime/config.py, runtime/fp16/loss_scaler.py"
_RANK_SAYS = r"^(?:\s*\d+: ?)?rank (?P<rank>\d+): error: "
_BAD_SETTING = (
    r"is not set$|is no JSON|does not divide into|is decided by the training settings|but the training settings say|"
    r"data weights must be|too few for one sequence|holds the token id|is no Megatron index|no tokens to read|"
    r"bytes where its (?:header|index) asks|nobody says whether to resume|was saved with|do not share hidden|"
    r"do not divide heads|above the model's context|are not two$|must be 1 or more"
)
"""How its errors of settings and data end; those of checkpoints, files and space are told by their own words."""
_NAN = (": nan", ": NAN", ": NaN", "=nan", "=NaN", "= nan", "oss nan", "oss NaN")
_NO_NUMBER = (
    *(*_NAN, "  nan", ":nan", "'nan'", "= NaN"),
    *("  inf", ": inf", ": Inf", ": INF", "=inf", "=Inf", "= inf"),
    *(":NaN", ":NAN", "= NAN", "=NAN", ":inf", ":Inf", "= Inf"),
    *("oss NAN", "oss inf", "oss Inf"),
)
_SAID = (
    *("oss is nan", "oss is NaN", "oss is NAN", "oss is inf", "oss is Inf", "oss is non"),
    *("oss is not", "oss became", "finite loss", "diverged"),
)
LOSS = (
    r"(?:(?<![\w/])|(?<=\x1b\[\d\dm))"
    r"(?<!moe )(?<!aux )(?<!\bz )(?<!val )(?<!validation )(?<!eval )(?<!test )(?<!mtp )(?<!router )"
    r"(?<!balancing )(?<!balance )"
    r"(?:lm[ _]|reduced_train_|per_token_|train[_/ ]|total[ _]|train/cross_?entropy|mean_|avg_)?loss"
)
"""How step lines call the loss of the model, which is neither that of a part of it nor that of a validation."""
LOSS_IS_NAN = "the loss is not a number, step after step", "neither the loss nor its gradient is a number"
"""What entries mean that hold only while no later loss is a number."""

_NO_IF = r"(?<!if )(?<!when )(?<!if the )(?<!when the )"
SAYS_LOSS_IS_NAN = "the program says that the loss is not a number"
"""What entries mean that are said outright; they hold only as long, too."""

PROGRAM: tuple[Signature, ...] = (
    # the reference trainer's own word on a checkpoint, whatever the error in it says
    root(
        "rror",
        r"rank \d+: error: .*\bglobal_step\d+ (?:cannot be loaded: |holds the (?:weights|optimizer) of step )",
        "checkpoint_incomplete",
        "the checkpoint cannot be loaded",
        "the reference trainer: trainer/checkpoint.py",
    ),
    # the training's own numbers and settings
    root("xception", r"loss scale already at minimum", "divergence", "the loss scale is exhausted", _DEEPSPEED),
    root(
        "rror",
        r"found (?:NaN|Inf) in (?:local )?(?:grad|forward loss)",
        "divergence",
        "the loss or its gradient is not a number",
        "NVIDIA/Megatron-LM: megatron/core/distributed/param_and_grad_buffer.py",
    ),
    *(
        root(
            clue,
            rf"(?i){_NO_IF}(?:{LOSS} (?:is|became) (?:nan|inf(?:inite|inity)?|non-?finite|not finite|not a number)"
            rf"|\btraining (?:has )?diverged|{LOSS} (?:has )?diverged"
            r"|(?<!val )(?<!validation )(?<!eval )\bnon-finite loss (?:at|in|detected|encountered))\b",
            "divergence",
            SAYS_LOSS_IS_NAN,
            "facebookresearch/mae, detr: engine; NVIDIA/Megatron-LM: rerun_state_machine.py",
        )
        for clue in _SAID
    ),
    *(
        root(
            clue,
            rf"(?i){LOSS}['\"]?(?:: | ?= ?| )nan\b.*\bgrad[ _]norm['\"]?(?:: | ?= ?| )nan\b",
            "divergence",
            LOSS_IS_NAN[1],
            "NVIDIA/Megatron-LM, Hugging Face Trainer: their step lines",
            weight="symptom",
            confidence="medium",
        )
        for clue in _NAN
    ),
    *(
        root(
            clue,
            rf"(?i){LOSS}['\"]?(?:\s*[:=]\s*|\s+)['\"]?(?:nan|[+-]?inf(?:inity)?)\b|"
            r"'loss': '?0\.0'?, 'grad_norm': '?nan\b",  # its mean leaves losses out that are no numbers
            "divergence",
            LOSS_IS_NAN[0],
            "NVIDIA/Megatron-LM, Hugging Face Trainer, pytorch/torchtitan (which pads and colours): their step lines",
            at_least=3,
        )
        for clue in _NO_NUMBER
    ),
    root("rror", r"Check batch related parameters", "config", "the batch sizes do not divide", _DEEPSPEED),
    root("rror", r"DeepSpeedConfigError: ", "config", "DeepSpeed refuses its settings", _DEEPSPEED),
    root(
        "DP world size",
        r"used a DP world size of \d+ but the current",
        "checkpoint_world_size",
        "the checkpoint has another world size",
        _DEEPSPEED,
    ),
    root(
        "rror",
        r"unrecognized arguments:|the following arguments are required:|: error: argument ",
        "config",
        "the program does not take its arguments",
        "CPython: argparse",
        start_only=True,
    ),
    # checkpoints
    root(
        "are missing",
        r"zero checkpoints paths are missing",
        "checkpoint_incomplete",
        "shards of the checkpoint are missing",
        _DEEPSPEED,
    ),
    root(
        "does not exist",
        r"load path: \S+ does not exist",
        "checkpoint_incomplete",
        "files of the checkpoint are missing",
        _DEEPSPEED,
    ),
    *(
        root(
            clue,
            r"PytorchStreamReader failed|failed finding central directory|checkpoint .*(?:truncated|corrupt)",
            "checkpoint_incomplete",
            "a shard of the checkpoint is torn",
            "pytorch/pytorch: caffe2/serialize/inline_container.cc",
        )
        for clue in ("rror", "PytorchStreamReader")
    ),
    root(
        "rror",
        r"FileNotFoundError: .*(?:_optim_states\.pt|_model_states\.pt|\.distcp|/\.metadata)\b",
        "checkpoint_incomplete",
        "files of the checkpoint are missing",
        _DEEPSPEED,
    ),
    # the start
    root("rror", r"EADDRINUSE|[Aa]ddress already in use", "port_in_use", "the port was in use", _TORCH),
    *(
        # in brackets stands what PyTorch tries first, and may go on without
        root(
            clue, r"EADDRINUSE|(?<!errno: 98 - )[Aa]ddress already in use", "port_in_use", "the port was in use", _TORCH
        )
        for clue in ("EADDRINUSE", "ddress already in use")
    ),
    root(
        "rror",
        r"ModuleNotFoundError:|ImportError:|error while loading shared libraries",
        "environment",
        "a module or library is missing",
        "CPython, glibc",
        start_only=True,
    ),
    root(
        "not found",
        r": command not found|GLIBC\S* not found|executable file not found",
        "environment",
        "a program or library is missing",
        "GNU bash, glibc, container runtimes",
        start_only=True,
    ),
    root("rror", r"no kernel image is available", "environment", "the driver does not fit the program", _TORCH),
    root(
        "rror",
        r"driver version is insufficient|NVIDIA driver on your system is too old|Found no NVIDIA driver|"
        r"system has unsupported display driver|forward compatibility was attempted on non supported HW",
        "environment",
        "the driver does not fit the program",
        f"{_TORCH}; NVIDIA CUDA runtime: cudaErrorSystemDriverMismatch, cudaErrorCompatNotSupportedOnDevice",
        if_alone="gpu_hardware",
    ),
    root(
        "rror",
        r"NVML_SUCCESS == .*INTERNAL ASSERT FAILED",
        "environment",
        "the driver of the node's GPUs does not answer",
        "pytorch/pytorch: c10/cuda/CUDACachingAllocator.cpp",
        confidence="medium",
        if_alone="gpu_hardware",
    ),
    root(
        "version mismatch",
        r"(?i)\bnvml.*Driver/library version mismatch",
        "environment",
        "the driver was changed under the node's feet",
        "NVIDIA nvidia-smi",
        if_alone="gpu_hardware",
    ),
    root(
        "rror",
        r"FileNotFoundError: \[Errno 2\]",
        "config",
        "a file that is named is not there",
        _ERRNO,
        confidence="medium",
        start_only=True,
        hint="see whether the path is wrong, or only not visible on one node",
    ),
    # the reference trainer's own words
    root(
        "rror",
        rf"{_RANK_SAYS}.*(?:No such file or directory|Not a directory|Is a directory)$",
        "config",
        "a file that is named is not there",
        TRAINER,
    ),
    root(
        "rror",
        rf"{_RANK_SAYS}.*"
        r"(?:there is no checkpoint|cannot be loaded|holds the weights of step|/global_step\d+/\S+ is missing)",
        "checkpoint_incomplete",
        "the checkpoint cannot be loaded",
        TRAINER,
    ),
    root(
        "rror",
        rf"{_RANK_SAYS}.* was saved with world_size ",
        "checkpoint_world_size",
        "the checkpoint has another world size",
        TRAINER,
    ),
    root(
        "rror",
        rf"{_RANK_SAYS}.*(?:{_BAD_SETTING})",
        "config",
        "the trainer refuses its settings or data",
        TRAINER,
    ),
    root(
        ": hint: ",
        r"^(?:\s*\d+: ?)?rank (?P<rank>\d+): hint: ",
        "config",
        "what the trainer says can be done",
        TRAINER,
        weight="symptom",
        survivable=True,
    ),
)
