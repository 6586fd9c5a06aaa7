"""No alternative of a pattern is dead: lines that it means hold the clue by which they are looked for."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pretrainctl.recovery.log_lines import bare
from pretrainctl.recovery.log_reading import find_cause
from pretrainctl.recovery.signatures import SIGNATURES, Signature
from pretrainctl.recovery.signatures.lookup import Lookup, shape_of
from pretrainctl.recovery.signatures.xids import XIDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_parse  # the parser of patterns, under the name that all Pythons know

MOST = 5000
SEEN = [
    # each as its program prints it; many of them an alternative that stood under a clue which the line does not hold
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "gpu_oom"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "gpu_oom"),
    ("RuntimeError: cuSOLVER error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", "gpu_oom"),
    ("RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", "gpu_oom"),
    ("RuntimeError: cusparse error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`", "gpu_oom"),
    (
        (
            ":0:rocdevice.cpp:2724: 4411 us: [pid:7 tid:0x7f] Callback: Queue 0x7f aborting with error : "
            "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. code: 0x1008"
        ),
        "gpu_oom",
    ),
    ("cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory", "gpu_oom"),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "gpu_oom"),
    (
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
        ),
        "gpu_hardware",
    ),
    ("RuntimeError: CUDA error: no CUDA-capable device is detected", "gpu_hardware"),
    ("gn5:1:2 [0] init.cc:145 NCCL WARN Cuda failure 100 'no CUDA-capable device is detected'", "gpu_hardware"),
    (
        "E0000 cuda_driver.cc:280] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "gpu_hardware",
    ),
    ("RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", "gpu_hardware"),
    (
        "gn5:1:2 [0] NCCL WARN Cuda failure 721 'Invalid access of peer GPU memory over nvlink or a hardware error'",
        "gpu_hardware",
    ),
    (
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error",
        "gpu_hardware",
    ),
    ("E0000 cuda_driver.cc:9] CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", "gpu_hardware"),
    ("F0000 stream.cc:1] CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", "gpu_hardware"),
    ("F0000 driver.cc:1] CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized", "gpu_hardware"),
    ("F0000 stream.cc:1] CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", "application_error"),
    ("F0000 stream.cc:1] CUDA_ERROR_ASSERT: device-side assert triggered", "application_error"),
    ("gn5:1:2 [0] enqueue.cc:9 NCCL WARN Cuda failure 710 'device-side assert triggered'", "application_error"),
    ("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", "application_error"),
    (
        (
            "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [231,0,0], thread: [64,0,0] "
            "Assertion `srcIndex < srcSelectDimSize` failed."
        ),
        "application_error",
    ),
    (
        "  what():  PytorchStreamReader failed reading zip archive: failed finding central directory",
        "checkpoint_incomplete",
    ),
    ("RuntimeError: the checkpoint of step 40 is truncated", "checkpoint_incomplete"),
    ("ValueError: checkpoint /c/40 is corrupt", "checkpoint_incomplete"),
    ("  what():  [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory", "host_oom"),
    ("mkdir: cannot create directory '/scratch/a': Read-only file system", "filesystem"),
    ("ls: cannot access '/beegfs/run': Transport endpoint is not connected", "filesystem"),
    ("cat: /lustre/a: Cannot send after transport endpoint shutdown", "filesystem"),
    ("OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/a'", "filesystem"),
    ("OSError: [Errno 121] Remote I/O error", "filesystem"),
    ("accept: Too many open files", "environment"),
    ("cp: cannot create regular file 'b': Quota exceeded", "quota"),
    ("nc: bind: Address already in use", "port_in_use"),
    ("[c10d] The server socket could not be bound, code: -98, name: EADDRINUSE", "port_in_use"),
    (
        (
            "deepspeed.ops.op_builder.builder.CUDAMismatchException: >-"
            " DeepSpeed Op Builder: Installed CUDA version 11.8 "
            "does not match the version torch was compiled with 12.1, unable to compile cuda/cpp extensions"
        ),
        "environment",
    ),
    ("RuntimeError: Ninja is required to load C++ extensions", "environment"),
    (
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile it (12.1).",
        "environment",
    ),
    ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", "environment"),
    (
        "slurmstepd: error: couldn't chdir to `/scratch/a': No such file or directory: going to /tmp instead",
        "environment",
    ),
    ("srun: error: Unable to create step for job 7: Requested node configuration is not available", "config"),
    (
        "huggingface_hub.utils._http.OfflineModeIsEnabled: Cannot reach https://huggingface.co/a: offline mode",
        "environment",
    ),
    (
        (
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and "
            "outgoing traffic has been disabled."
        ),
        "environment",
    ),
    *(
        (f"gn5:1:2 [0] init.cc:145 NCCL WARN Cuda failure 3 '{text}'", "environment")
        for text in ("CUDA driver version is insufficient for CUDA runtime version", "invalid device function")
    ),
    ("gn5:1:2 [0] init.cc:145 NCCL WARN Cuda failure 209 'no kernel image is available'", "environment"),
    ("gn5:1:2 [0] init.cc:145 NCCL WARN Cuda failure 35 'CUDA driver version is insufficient'", "environment"),
    ("gn5:1:2 [0] init.cc:145 NCCL WARN Cuda failure 98 'invalid device function'", "environment"),
    ("gn5:1:2 [0] net.cc:592 NCCL WARN Error: network AWS Libfabric not found.", "environment"),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", "environment"),
    ("bash: fork: retry: Resource temporarily unavailable", "environment"),
    ("gn5:1:2 [0] misc/ibvwrap.cc:222 NCCL WARN Call to ibv_create_qp failed with error Invalid argument", "fabric"),
    (
        "gn5:1:2 [0] socket.cc:4 NCCL WARN socketPollConnect: connect to 10.0.0.1<1> failed : Connection timed out",
        "fabric",
    ),
    (
        "gn5:1:2 [0] socket.cc:4 NCCL WARN socketStartConnect: Connect to 10.0.0.1<1> failed : Network is unreachable",
        "fabric",
    ),
    ("mlx5_core 0000:1a:00.0: mlx5_error_sw_reset:238:(pid 4411): start", "fabric"),
    (
        "gn5:1:2 [0] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<3> with status=12 opcode=0",
        "fabric",
    ),
    ("RuntimeError: Missing key in checkpoint state_dict: model.layers.0.weight.", "config"),
    (
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        "config",
    ),
    ("ValueError: loaded state dict has a different number of parameter groups", "config"),
    ("RuntimeError: Rank 3: found Inf in forward loss", "divergence"),
    ("AssertionError: Rank 3: found Inf in local grad norm", "divergence"),
    ("AssertionError: Rank 3: found NaN in local forward loss calculation", "divergence"),
    ("step: 4 loss = nan grad_norm = nan", "divergence"),
    *((f"step 9/160 | loss {value} | grad norm {value}", "divergence") for value in ("nan", "NaN")),
    *((f"step 9 loss{sign} grad_norm{sign}", "divergence") for sign in (": NaN", "=NaN")),
    ("RuntimeError: CUDA error: system has unsupported display driver / cuda driver combination", "environment"),
    ("RuntimeError: CUDA error: forward compatibility was attempted on non supported HW", "environment"),
    ("train.py: error: the following arguments are required: --data-path", "config"),
    ("RuntimeError: Found no NVIDIA driver on your system.", "environment"),
    ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", "environment"),
    (
        "RuntimeError: module compiled against ABI version 0x1000009 but this version of numpy is 0x2000000",
        "environment",
    ),
    ("slurmstepd: error: *** JOB 7 ON gn01 UNCORRECTABLE MEMORY ERROR AT X ***", "node_failure"),
    # ROCm
    ("RuntimeError: HIP error: unspecified launch failure", "gpu_hardware"),
    ("RuntimeError: HIP error: no ROCm-capable device is detected", "gpu_hardware"),
    ("RuntimeError: No HIP GPUs are available", "gpu_hardware"),
    ("RuntimeError: HIP error: an illegal memory access was encountered", "application_error"),
    ("n5:1:2 [0] NCCL WARN HIP failure 'invalid argument'", "unknown"),
    *(
        (f"n5:1:2 [0] NCCL WARN HIP failure '{what}'", kind)
        for what, kind in (
            ("system not yet initialized", "gpu_hardware"),
            ("all CUDA-capable devices are busy or unavailable", "gpu_hardware"),
            ("no CUDA-capable device is detected", "gpu_hardware"),
            ("no ROCm-capable device is detected", "gpu_hardware"),
            ("the launch timed out and was terminated", "gpu_hardware"),
            ("unspecified launch failure", "gpu_hardware"),
            ("an illegal instruction was encountered", "application_error"),
            ("an illegal memory access was encountered", "application_error"),
            ("invalid program counter", "application_error"),
            ("misaligned address", "application_error"),
            ("device-side assert triggered", "application_error"),
        )
    ),
    *(
        (f"Queue 0x7f aborting with error : HSA_STATUS_ERROR_{what}: x. code: 0x29", "application_error")
        for what in ("MEMORY_APERTURE_VIOLATION", "MEMORY_FAULT", "ILLEGAL_INSTRUCTION")
    ),
    ("Queue 0x7f Aborting with error : HSA_STATUS_ERROR_EXCEPTION: a hardware exception. code: 0x1016", "gpu_hardware"),
    # drivers, file systems, networks
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that", "gpu_hardware"),
    (
        'RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "../c10/x"',
        "environment",
    ),
    ("Lustre: 44:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow", "filesystem"),
    ("LustreError: 11-0: a-OST0012-osc: operation ost_write to node 10.1.0.9@o2ib failed: rc = -107", "filesystem"),
    ("2026-11-30_10:00:00.123+0100: [E] Disk failure. Volume gpfs1. rc = 5, and physical volume nsd12.", "filesystem"),
    (
        "libfabric:44:1700000000:cxi:ep_data:cxip_recv_cb():12<warn> n4: Unexpected event rc: PTL_UNDELIVERABLE",
        "fabric",
    ),
    ("MPIDIG_progress(98)......: OFI poll failed (ofi_events.c:124:MPIDI_OFI_handle_cq_error:UNDELIVERABLE)", "fabric"),
    (
        "MPICH ERROR [Rank 12] - Abort(40) (rank 12 in comm 0): Fatal error in PMPI_Allreduce: Other",
        "application_error",
    ),
    ("n5:1:2 [0] init.cc:1787 NCCL WARN Cuda failure 'peer access is not supported'", "unknown"),
    ("[rank5]: torch.distributed.DistBackendError: NCCL error in: x.cpp:77, invalid usage (run with", "unknown"),
    *(
        (f"NCCL error in: x.cpp:77, {what}, NCCL version 2.21.5: an error", "unknown")
        for what in ("invalid argument", "internal error")
    ),
    ("ncclInternalError: Internal check failed: error", "unknown"),
    *((f"nccl{what}: This usually reflects an error", "unknown") for what in ("InvalidUsage", "InvalidArgument")),
    ("[rank5]: Duplicate GPU detected : rank 5 and rank 4 both on CUDA device 4000", "config"),
    # processes, memory, Slurm, settings
    *(
        (f"[n3:04411] Signal: {what} (11)", "application_error")
        for what in ("Segmentation fault", "Bus error", "Floating point exception")
    ),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "host_oom"),
    ("srun: error: Unable to allocate resources: Requested node configuration is not available", "config"),
    (
        "slurmstepd: error: *** JOB 77 STEPD TERMINATED ON n5 AT X DUE TO JOB NOT ENDING WITH SIGNALS ***",
        "node_failure",
    ),
    *(
        (f"AssertionError: CUDA_DEVICE_MAX_CONNECTIONS {what} 1", "config")
        for what in ("must be set to", "environment variable should be", "to be set to")
    ),
    ("ValueError: model type `qwen3` but Transformers does not recognize this architecture.", "environment"),
    # kernels
    ("X n4 kernel: Memory failure: 0x7f: Killing python:4411 due to hardware memory corruption", "node_failure"),
    ("X n4 kernel: mce: [Hardware Error]: Uncorrected hardware memory error in user-access at 7f", "node_failure"),
    ("X n4 kernel: watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4411]", "node_failure"),
    ("X n4 kernel: INFO: task python:4411 blocked for more than 120 seconds.", "filesystem"),
    (
        "X n4 kernel: python3.11[4411]: segfault at 0 ip 00007f sp 00007ffd error 4 in libtorch_cpu.so",
        "application_error",
    ),
    # UCX, ranks that wait
    (
        "[n4:4411:0] uct_mem.c:421 UCX  ERROR failed to register 0x7f length 4 on mlx5_0: Cannot allocate memory",
        "environment",
    ),
    ("[n4:4411:0] rc.c:128 UCX  ERROR send completion with error: remote access error qpn 0x1", "fabric"),
    ("[n4:4411:0] ib_device.c:1171 UCX  ERROR ibv_create_ah(dlid=12) failed: Connection timed out", "fabric"),
    (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 4, for key",
        "collective_timeout",
    ),
    (
        (
            "RuntimeError: Rank 0 reached it, but received errors while waiting for send/recv from rank 9. Please "
            "check rank 9 logs"
        ),
        "collective_timeout",
    ),
    ("  exitcode  : -6 (pid: 4711)", ""),
    ("slurmstepd: error: task_prolog: Exec of /etc/slurm/task_prolog failed", "boot_failure"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "collective_timeout"),
    ("[rank3]: torch.distributed.elastic.rendezvous.api.RendezvousClosedError", ""),
    # how launchers say that a process died
    ("n3: [ERROR] [launch.py:325:sigkill_handler] ['python', '--local_rank=3'] exits with return code = -9", "unknown"),
    ("[ERROR] [launch.py:325:sigkill_handler] ['python'] exits with return code = -11", "application_error"),
    ("[ERROR] [launch.py:325:sigkill_handler] ['python'] exits with return code = 1", ""),
    ("subprocess.CalledProcessError: Command '['python', 'a.py']' died with <Signals.SIGKILL: 9>.", "unknown"),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL", "unknown"),
    *(
        (
            f"torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal {name}",
            "application_error",
        )
        for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
    ),
    *(
        (f"subprocess.CalledProcessError: Command 'a' died with <Signals.{name}: 0>.", "application_error")
        for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
    ),
    ("mpirun noticed that process rank 1 with PID 0 on node cn02 exited on signal 9 (Killed).", "unknown"),
    ("=   KILLED BY SIGNAL: 9 (Killed)", "unknown"),
    ("=   KILLED BY SIGNAL: 11 (Segmentation fault)", "application_error"),
    # settings
    ("pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig", "config"),
    ("pydantic.error_wrappers.ValidationError: 2 validation errors for DeepSpeedFP16Config", "config"),
    ("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct", "config"),
    ("hydra.errors.ConfigCompositionException: Error merging override trainer.x=1", "config"),
    ("0: Could not override 'trainer.x'.", "config"),
    *(
        (f"yaml.{name}Error: while scanning for the next token", "config")
        for name in ("scanner.Scanner", "parser.Parser", "constructor.Constructor")
    ),
    ("ValueError: Some keys are not used by the HfArgumentParser: ['lr_']", "config"),
    ("sbatch: error: QOSMaxSubmitJobPerUserLimit", "config"),
    ("sbatch: error: AssocMaxSubmitJobLimit", "config"),
    ("sbatch: error: MaxNodesPerUser", "config"),
    (
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)",
        "config",
    ),
    ("srun: error: Unable to confirm allocation for job 27: Invalid job id specified", "config"),
    ("srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 27", "config"),
    # what is not written
    ("  what():  [enforce fail at inline_container.cc:672] . unexpected pos 1024 vs 990", "filesystem"),
    ("RuntimeError: basic_ios::clear: iostream error", "filesystem"),
    ("terminate called: ios_base::clear: unspecified: iostream error", "filesystem"),
    ("RuntimeError: write: iostream error", "filesystem"),
    ("OSError: 1048576 requested and 0 written", "filesystem"),
    ("safetensors_rust.SafetensorError: Error while serializing: IoError", "filesystem"),
    # NCCL and Open MPI
    ("torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled cuda error, NCCL version 2.20", "unknown"),
    ("ncclUnhandledCudaError: Call to CUDA function failed.", "unknown"),
    (
        (
            "[[1,1],0][btl_openib_component.c:3497:handle_wc] from n3 to: n5 error polling LP CQ with status RETRY "
            "EXCEEDED ERROR status number 12 for wr_id 1"
        ),
        "fabric",
    ),
    ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 411 got signal: 15", ""),
    ("[E ProcessGroupNCCL.cpp:915] ProcessGroupNCCL is to abort: an error of another rank", ""),
]
GAP = None
"""Stands for any text."""
Skeleton = tuple[str | None, ...]
"""Literal characters in order, and gaps."""


def skeletons(parsed: Any) -> list[Skeleton]:
    """The ways to fit a pattern, one for each choice of its alternatives."""
    found: list[Skeleton] = [()]
    for kind, what in parsed:
        ways = ways_of(str(kind), what)
        found = list(dict.fromkeys(head + tail for head, tail in itertools.product(found, ways)))
        assert len(found) < MOST, "too many alternatives in one pattern to try them all"
    return found


def ways_of(kind: str, what: Any) -> list[Skeleton]:
    if kind == "LITERAL":
        return [(chr(what) if not chr(what).isdigit() else GAP,)]
    if kind == "IN":
        return [(one,) for one in set_of(what)] or [(GAP,)]
    if kind == "SUBPATTERN":
        return skeletons(what[3])
    if kind == "BRANCH":
        return [way for branch in what[1] for way in skeletons(branch)]
    if kind in {"MAX_REPEAT", "MIN_REPEAT"}:
        least, most, body = what
        if least == 0:
            return [(GAP,)]
        return [way * min(least, 3) + ((GAP,) if most != least else ()) for way in skeletons(body)]
    if kind == "ASSERT":
        return [(*way, GAP) for way in skeletons(what[1])] if what[0] > 0 else [()]
    return [()] if kind in {"ASSERT_NOT", "AT"} else [(GAP,)]


def set_of(members: Any) -> list[str]:
    """Both letters of a set that are a large and a small one; no other set is tried one by one."""
    letters = [chr(what) for kind, what in members if str(kind) == "LITERAL"]
    return letters if len(members) == len(letters) == 2 and letters[0].lower() == letters[1].lower() else []


def texts(skeleton: Skeleton) -> list[str]:
    """Its literal texts between the gaps."""
    runs = itertools.groupby(skeleton, key=lambda one: one is GAP)
    return ["".join(filter(None, run)) for gap, run in runs if not gap]


def entries() -> list[tuple[str, list[Signature]]]:
    """Patterns with all the entries that stand for one of them, each under a clue of its own."""
    same: dict[str, list[Signature]] = defaultdict(list)
    for signature in SIGNATURES:
        same[f"{signature.pattern.pattern} {signature.meaning} {signature.start_only}"].append(signature)
    return [(group[0].pattern.pattern, group) for group in same.values()]


def examples() -> Iterator[str]:
    """All lines that the tests of this folder show: in their tables, and within their functions."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from node.value.splitlines()
        spec = importlib.util.spec_from_file_location(f"examples_of_{path.stem}", path)
        if path.stem != Path(__file__).stem and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            yield from lines_in([value for value in vars(module).values() if isinstance(value, (list, tuple, set))])
    yield from lines_in(SEEN)


def lines_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from value.splitlines()
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from lines_in(one)


EXAMPLES = list(dict.fromkeys(examples()))


def is_alive(skeleton: Skeleton, group: list[Signature]) -> bool:
    """Whether the texts of an alternative hold a clue, or a line that is an example of it does."""
    said = texts(skeleton)
    clues = [signature.clue for signature in group]
    if group[0].pattern.flags & re.IGNORECASE:
        clues, said = [clue.lower() for clue in clues], [text.lower() for text in said]
    if any(clue in text for clue in clues for text in said):
        return True
    wanted = re.compile(".*".join(map(re.escape, said)), re.IGNORECASE)
    return any(
        wanted.search(line) and group[0].pattern.search(line) and any(one.clue in line for one in group)
        for line in EXAMPLES
    )


@pytest.mark.parametrize(("pattern", "group"), entries(), ids=[pattern[:40] for pattern, _ in entries()])
def test_each_alternative_can_be_met_by_a_clue(pattern: str, group: list[Signature]) -> None:
    dead = {" ... ".join(texts(one)) for one in skeletons(sre_parse.parse(pattern)) if not is_alive(one, group)}
    assert not dead, f"no line with one of {[one.clue for one in group]} is known that says {sorted(dead)}"


def test_each_entry_says_where_its_wording_was_seen_and_is_hit_by_a_case() -> None:
    hit = set()
    for line in EXAMPLES:
        fits = [one for one in SIGNATURES if one.clue in line and one.pattern.search(line)]
        hit |= {*fits[:1], *[one for one in fits if not one.start_only][:1]}
    assert not [(one.clue, one.pattern.pattern) for one in SIGNATURES if one not in {*hit, *XIDS} or not one.source]


@pytest.mark.parametrize("digit", ["1", "5"])
def test_numbers_that_mean_something_are_no_part_of_what_lines_share(digit: str) -> None:
    """Lines that differ only in their numbers are looked up once."""
    for line in map(bare, EXAMPLES):
        lookup, fresh = Lookup(), Lookup()
        other = re.sub(r"(?<![A-Za-z_\d])\d+", digit, line)
        lookup.find(other, shape_of(other), stepped=False)
        shape = shape_of(line)
        assert lookup.find(line, shape, stepped=False) is fresh.find(line, shape, stepped=False), line


@pytest.mark.parametrize(("line", "kind"), SEEN, ids=[line[:60] for line, _ in SEEN])
def test_what_was_seen_is_told_as_what_it_is(line: str, kind: str) -> None:
    found = find_cause([line], stepped=False)
    assert found is not None
    assert (found.signature.failure_class, found.signature.weight == "echo") == (kind or "unknown", not kind)


def test_a_dead_alternative_is_found() -> None:
    dead = Signature("emory", re.compile(f"out of memory|{chr(0x2620)}{chr(0x2620)}"), "gpu_oom", "x", "x")
    alive = [is_alive(one, [dead]) for one in skeletons(sre_parse.parse(dead.pattern.pattern))]
    assert alive == [True, False]
