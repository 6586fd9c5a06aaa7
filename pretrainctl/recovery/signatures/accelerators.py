"""What drivers and runtimes of GPUs say, of both makers."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import CUDA_SAYS, Signature, root

__all__ = ["ACCELERATORS"]

_ROCM = "ROCm: ROCR-Runtime, hipError_t; Linux: amdgpu"

ACCELERATORS: tuple[Signature, ...] = (
    *(
        root(
            clue,
            r"[Uu]nable to determine the device handle for (?:GPU|gpu)|GPU is lost\. +Reboot the system|"
            r"GPU(?:[- ][\w:.-]+)? has fallen off the bus",
            "gpu_hardware",
            "a GPU does not answer any more",
            "NVIDIA nvidia-smi: NVML_ERROR_GPU_IS_LOST",
        )
        for clue in ("GPU is lost", "device handle for", "fallen off the bus")
    ),
    root(
        "SXid",
        r"\bSXid \([^)]*\): \d+, Fatal\b",
        "gpu_hardware",
        "an NVSwitch of the node failed",
        "NVIDIA, Fabric Manager user guide: SXid errors",
    ),
    *(
        root(
            clue,
            rf"{CUDA_SAYS}(?:system not yet initialized|all CUDA-capable devices are busy or unavailable)",
            "gpu_hardware",
            "the node's GPUs are not ready",
            "NVIDIA CUDA runtime: cudaErrorSystemNotReady, cudaErrorDevicesUnavailable",
            confidence="medium",
            hint="on this node the fabric manager does not run, or a process of another job holds a GPU: tell the site",
        )
        for clue in ("system not yet initialized", "devices are busy")
    ),
    *(
        root(
            clue,
            rf"No (?:CUDA|HIP) GPUs are available|{CUDA_SAYS}no (?:CUDA|ROCm)-capable device is detected",
            "gpu_hardware",
            "a GPU does not answer any more",
            "rwth-i6/returnn#1486; NVIDIA CUDA runtime: cudaErrorNoDevice",
        )
        for clue in ("GPUs are available", "capable device is detected")
    ),
    root(
        "RmInitAdapter",
        r"NVRM: .*RmInitAdapter failed!",
        "gpu_hardware",
        "the driver cannot start a GPU",
        "NVIDIA/open-gpu-kernel-modules: kernel-open/nvidia/nv.c",
    ),
    *(
        root(clue, pattern, "gpu_hardware", "a GPU hangs or its memory is broken", _ROCM, confidence="medium")
        for clue, pattern in (
            ("HW Exception by GPU", r"HW Exception by GPU node-\d+ .*reason ?: ?GPU Hang"),
            ("amdgpu", r"amdgpu: (?:.*uncorrectable hardware errors detected|GPU reset begin)"),
        )
    ),
    root(
        "HSA_STATUS_ERROR",
        r"HSA_STATUS_ERROR_(?:MEMORY_APERTURE_VIOLATION|MEMORY_FAULT|ILLEGAL_INSTRUCTION)",
        "application_error",
        "a kernel read memory it may not",
        _ROCM,
        confidence="medium",
    ),
    root(
        "HSA_STATUS_ERROR",
        r"HSA_STATUS_ERROR_EXCEPTION",
        "gpu_hardware",
        "a GPU failed without saying why: its hardware is a suspect",
        _ROCM,
        confidence="low",
        hint="leave the node out if it comes a second time there",
    ),
    root(
        "communicate with the NVIDIA driver",
        r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        "gpu_hardware",
        "the driver of the node's GPUs does not answer",
        "NVIDIA nvidia-smi",
        weight="symptom",
        confidence="medium",
        survivable=True,
    ),
    root(
        "nvml error",
        r"nvidia-container-cli: \w+ error: nvml error: (?:driver not loaded|GPU (?:is )?lost|unknown)",
        "gpu_hardware",
        "the driver of the node's GPUs does not answer",
        "NVIDIA/libnvidia-container: the errors of its command",
        confidence="medium",
    ),
    root("rror", r"HIP error: out of memory|hipErrorOutOfMemory", "gpu_oom", "the GPU's memory ran out", _ROCM),
    *(
        root(clue, pattern, "gpu_oom", "the GPU's memory ran out", "jax-ml/jax#13428; openxla/xla: the status text")
        for clue, pattern in (
            ("RESOURCE_EXHAUSTED", r"RESOURCE_EXHAUSTED: .*[Oo]ut of memory"),
            ("Resource exhausted", r"Resource exhausted: [Oo]ut of memory"),
            ("CUDA_ERROR_OUT_OF_MEMORY", r"CUDA_ERROR_OUT_OF_MEMORY"),
        )
    ),
    root(
        "out of resource",
        r"out of resource: (?:shared memory|threads|registers|tensor memory)",
        "environment",
        "a kernel asks for more than this kind of GPU has",
        "triton-lang/triton: python/triton/runtime/errors.py",
        hint="smaller blocks or fewer stages in the kernel, or a GPU of the kind that it was tuned for",
    ),
    root(
        "rror",
        r"FlashAttention only supports \w+ GPUs or newer|hipErrorNoBinaryForGpu|HIP error: invalid device function",
        "environment",
        "a library is not built for this kind of GPU",
        "Dao-AILab/flash-attention; ROCm: hipError_t",
    ),
    root(
        "Possible persistent error",
        r"Possible persistent error!",
        "gpu_hardware",
        "the same step gave another result on another GPU",
        "NVIDIA/Megatron-LM: megatron/core/rerun_state_machine.py",
        confidence="medium",
    ),
)
