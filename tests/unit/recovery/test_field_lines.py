"""Lines of the field, each beside the nearest one that means something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl.recovery.log_reading import Finding, find_cause
from pretrainctl.workflows.doctor import examine_logs

# what it says, its class ("" for a consequence), and the nearest line that is not it
PAIRS = [
    # GPUs
    (
        "Unable to determine the device handle for GPU0000:4E:00.0: GPU is lost.  Reboot the system to recover",
        "gpu_hardware",
        "no request of a GPU is lost while the system reboots",
    ),
    (
        "Unable to determine the device handle for GPU0000:4E:00.0: Not Found",
        "gpu_hardware",
        "opened the device handle for GPU 0",
    ),
    ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "gpu_hardware", "a passenger has fallen off the bus"),
    (
        "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)",
        "gpu_hardware",
        "NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)",
    ),
    (
        "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "gpu_hardware",
        "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    ),
    ("NVRM: Xid (PCI:0000:41:00): 158, GPU Fatal Timeout", "gpu_hardware", "NVRM: Xid (PCI:0000:41:00): 43, Ch 1"),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "gpu_hardware",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    ),
    (
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "gpu_hardware",
        "RuntimeError: all workers are busy or unavailable",
    ),
    (
        "cn1:7:8 [0] init.cc:145 NCCL WARN Cuda failure 802 'system not yet initialized'",
        "gpu_hardware",
        "the queue system is not yet initialized",
    ),
    ("NVRM: GPU 0000:4e:00.0: RmInitAdapter failed! (0x62)", "gpu_hardware", "NVRM: RmInitAdapter took 3 s"),
    (
        "HW Exception by GPU node-4 (Agent handle: 0x1ebc04e0) reason :GPU Hang",
        "gpu_hardware",
        "HW Exception by GPU node-4 handler was installed",
    ),
    (
        "kernel: amdgpu 0000:c1:00.0: amdgpu: uncorrectable hardware errors detected in umc block",
        "gpu_hardware",
        "kernel: amdgpu 0000:c1:00.0: amdgpu: 1 correctable hardware errors detected in umc block",
    ),
    (
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        "gpu_hardware",
        "nvidia-container-cli: mount error: open failed",
    ),
    ("RuntimeError: HIP error: out of memory", "gpu_oom", "RuntimeError: HIP error: invalid argument"),
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes.",
        "gpu_oom",
        "grpc.RpcError: RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)",
    ),
    (
        "RuntimeError: Resource exhausted: Out of memory while trying to allocate 24 bytes.",
        "gpu_oom",
        "RuntimeError: Resource exhausted: too many requests",
    ),
    (
        "E failed to allocate 1.2G (130 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "gpu_oom",
        "CUDA_ERROR_NOT_FOUND: named symbol not found",
    ),
    (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, 147456, Hardware limit: 101376",
        "environment",
        "the queue ran out of resources: 3 jobs wait",
    ),
    (
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        "environment",
        "RuntimeError: FlashAttention forward failed",
    ),
    ("WARNING:rerun: Possible persistent error!", "gpu_hardware", "WARNING:rerun: Possible transient error!"),
    # network
    (
        "mm_posix.c:88 UCX  ERROR Not enough memory to write. Please check that /dev/shm or the directory",
        "config",
        "[1695:cn1:12:0] mm_posix.c:88 UCX  DEBUG opened /dev/shm/ucx_shm_posix_1",
    ),
    (
        "sys.c:915 UCX  ERROR shmget(size=1) failed: No space left on device, please check shared memory limits",
        "config",
        "OSError: [Errno 28] No space left on device: '/scratch/a'",
    ),
    (
        "ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
        "fabric",
        "download: retry count exceeded 3",
    ),
    (
        "cn1:7:8 [0] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 11. Error: 11 (Input/output error)",
        "fabric",
        "cn1:7:8 [0] NCCL INFO NET/OFI Selected Provider is efa",
    ),
    (
        "cn1:7:8 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        "fabric",
        "cn1:7:8 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
    ),
    (
        "cn1:7:8 [0] socket.cc:501 NCCL WARN socketStartConnect: Connect to 10.0.0.1<4711> failed : No route to host",
        "fabric",
        "cn1:7:8 [0] misc/socket.cc:501 NCCL INFO socketStartConnect: Connect to 10.0.0.1<4711> again",
    ),
    (
        "cn1:7:8 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        "environment",
        "cn1:7:8 [0] enqueue.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
    ),
    (
        "[Fatal] LE resources not recovered during flow control. FI_CXI_RX_MATCH_MODE=[hybrid|software] is required",
        "environment",
        "export FI_CXI_RX_MATCH_MODE=hybrid",
    ),
    (
        "Cassini Event Queue overflow detected.",
        "environment",
        "to avoid a Cassini Event Queue overflow, the queue is large",
    ),
    (
        "mlx5_core 0000:1a:00.0: device's health compromised - reached miss count",
        "fabric",
        "mlx5_core 0000:1a:00.0 ib0: Link up",
    ),
    (
        "The OpenFabrics (openib) BTL failed to initialize while trying to allocate some locked memory.",
        "environment",
        "max locked memory (kbytes, -l) unlimited",
    ),
    (
        "TimeoutError: [Errno 110] Connection timed out",
        "fabric",
        "TimeoutError: [Errno 110] Connection timed out: '/lustre/data/shard_0042.bin'",
    ),
    (
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /worker/info",
        "collective_timeout",
        "torch.distributed.DistStoreError: Failed to decode",
    ),
    (
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        "",
        "torch.distributed.DistNetworkError: a key is too long",
    ),
    ("[c10d] recvValue failed on SocketImpl(fd=77, addr=[a]:1, remote=[b]:2): x", "", "[c10d] recvValue of 4 bytes"),
    (
        "[E] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels",
        "",
        "all NCCL operations have finished",
    ),
    (
        "RuntimeError: NCCL communicator encountered error set by ProcessGroupNCCL: x",
        "",
        "RuntimeError: NCCL communicator has no ranks",
    ),
    ("cn1:7:8 [0] NCCL WARN socketProgress: Connection closed by remote peer cn2<1>", "", "cn1:7:8 [0] NCCL WARN odd"),
    ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "", "MPI_ABORT is not called here"),
    # file systems
    (
        "LustreError: 167-0: a-MDT0000-mdc-ff8: This client was evicted by a-MDT0000; in progress operations using",
        "filesystem",
        "an entry of the cache was evicted by the newest one",
    ),
    (
        "Lustre: a-OST3-osc: Connection to a-OST3 (at 10.0.0.7@o2ib) was lost; in progress operations using",
        "filesystem",
        "the run was lost; in progress: nothing",
    ),
    (
        "kernel: nfs: server fs1 not responding, still trying",
        "filesystem",
        "the license server is not responding to a question",
    ),
    (
        "kernel: blk_update_request: I/O error, dev nvme0n1, sector 1234",
        "filesystem",
        "counters: I/O error rate 0, dev mode",
    ),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455", "filesystem", "EXT4-fs (sda1): mounted filesystem"),
    ("cat: /gpfs/a: Stale file handle", "filesystem", "a stale file handle is opened anew"),
    (
        "mmfsd: GPFS Deadman Switch timer [0] has expired; IOs in progress.",
        "filesystem",
        "mmfsd: GPFS Deadman Switch timer [0] is set to 35 s",
    ),
    (
        "mmfs: [E] Lost membership in cluster c1.site. Unmounting file systems.",
        "filesystem",
        "mmfs: [N] Node 10.0.0.5 joined cluster c1.site",
    ),
    # checkpoints
    (
        "[WARNING] [engine.py:2914:load_checkpoint] Unable to find latest file at ckpt/latest, if trying",
        "checkpoint_incomplete",
        "found the latest file at ckpt/latest",
    ),
    ("_pickle.UnpicklingError: invalid load key, 'v'.", "config", "_pickle.UnpicklingError: invalid load key, 'x'."),
    ("EOFError: Ran out of input", "checkpoint_incomplete", "EOFError: the input has ended"),
    ("_pickle.UnpicklingError: pickle data was truncated", "checkpoint_incomplete", "the pickle data was written"),
    (r"_pickle.UnpicklingError: invalid load key, '\x00'.", "checkpoint_incomplete", "invalid load key, 'q'."),
    (
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "checkpoint_incomplete",
        "safetensors_rust.SafetensorError: File does not contain tensor lm_head.weight",
    ),
    (
        "RuntimeError: Error(s) in loading state_dict for GPTModel:",
        "config",
        "RuntimeError: Error in writing the state_dict",
    ),
    (
        "AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (32).",
        "config",
        "AssertionError: the step value from checkpoint (24) is odd",
    ),
    # frameworks and Slurm
    (
        "AssertionError: global batch size (16) is not divisible by micro batch size (2) times data parallel size (16)",
        "config",
        "warning: the step 7 is not divisible by the interval 2",
    ),
    (
        "AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix data/a",
        "config",
        "files found at the path prefix data/a",
    ),
    (
        "RuntimeError: Unable to JIT load the fused_adam op due to it not being compatible",
        "environment",
        "RuntimeError: Unable to load the op",
    ),
    (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96, got 88",
        "environment",
        "ValueError: the batch size changed",
    ),
    (
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "host_oom",
        "note: the handler of std::bad_alloc is set",
    ),
    ("  what():  std::bad_alloc", "host_oom", "catches std::bad_alloc"),
    (
        "srun: error: task 256 launch failed: Error configuring interconnect",
        "boot_failure",
        "srun: error: cn012: task 256: Exited with exit code 1",
    ),
    ("slurmstepd: error: Prolog failed on node gn07", "boot_failure", "the prolog failed on node gn07 once, in May"),
    (
        "slurmd[gn07]: error: [job 12] prolog failed status=1:0",
        "boot_failure",
        "slurmd[gn07]: [job 12] prolog done status=0:0",
    ),
    ("slurmstepd: error: TaskProlog failed status=1", "boot_failure", "TaskProlog failed status=0 is not an error"),
    ('sbatch: error: Munge encode failed: Failed to access "munge.socket.2"', "boot_failure", "Munge is up"),
    # what crashed, and what raised without a word
    ("line 12: 4711 Bus error               (core dumped) python train.py", "application_error", "Bus errors: 0"),
    (
        "srun: error: cn1: task 3: Bus error (core dumped)",
        "application_error",
        "srun: error: cn1: tasks 3-4: Bus error",
    ),
    ("AssertionError", "application_error", "raises an AssertionError where it is not so"),
    ("[rank3]: StopIteration", "application_error", "the loader catches StopIteration"),
    ("3: NotImplementedError", "application_error", "see also: NotImplementedError"),
    (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "application_error",
        "BackendCompilerFailed 0",
    ),
]
LOSSES = [
    "step: 12  loss:      nan  grad_norm:  1.0",
    "\x1b[31mstep: 12  \x1b[32mloss:      nan\x1b[39m  memory: 7",
    "12% 3/40 loss=NaN",
    "step 7 | loss: NaN",
    "{'loss': inf, 'epoch': 0.2}",
    " iteration 7/ 10 | lm loss: inf | loss scale: 1.0 |",
    "step: 12  loss:  inf",
    "loss = nan",
    "loss = inf",
    "step 3, loss=inf, lr=1e-4",
    'metrics: {"loss":nan}',
    "loss = NaN",
    "loss: Inf",
    "loss: INF",
    "loss=Infinity",
]
FINE = [
    "step: 12  loss:  2.1  grad_norm:  inf",
    "loss scale: inf",
    "iteration 7 | lm loss: 2.1E+00 | number of nan iterations:   0 |",
    "eval: loss_info=infer",
    "loss: 2.1 | info:   nan-free",
    "floss=nano",
]


def first(line: str, *, stepped: bool = False) -> Finding | None:
    return find_cause([line] * 3, stepped=stepped)


@pytest.mark.parametrize(("line", "kind", "near"), PAIRS, ids=[line[:40] for line, _, _ in PAIRS])
def test_a_line_and_the_nearest_that_is_not_it(line: str, kind: str, near: str, tmp_path: Path) -> None:
    found, other = first(line), first(near)
    assert found is not None
    if kind:
        assert (found.signature.failure_class, found.signature.weight != "echo") == (kind, True)
    else:
        assert found.signature.weight == "echo"
    assert other is None or other.signature is not found.signature
    log = tmp_path / "job.out"
    log.write_text(f"{line}\n")
    assert examine_logs([log]).failure_class == (kind or "unknown")


@pytest.mark.parametrize("line", LOSSES)
def test_a_loss_that_is_no_number_three_times(line: str) -> None:
    found = find_cause([line] * 3, stepped=True)
    assert found is not None
    assert found.signature.failure_class == "divergence"
    assert find_cause([line] * 2, stepped=True) is None


@pytest.mark.parametrize("line", FINE)
def test_numbers_that_are_no_loss(line: str) -> None:
    assert find_cause([line] * 5, stepped=True) is None


@pytest.mark.parametrize("line", ["EOFError: Ran out of input", "UnpicklingError: pickle data was truncated"])
def test_after_the_first_step_it_is_no_checkpoint(line: str) -> None:
    found = first(line, stepped=True)
    assert found is not None
    assert found.signature.failure_class == "application_error"


def test_what_a_peer_says_after_the_cause_is_none(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    echoes = [line for line, kind, _ in PAIRS if not kind]
    cause = "3: torch.OutOfMemoryError: CUDA out of memory."
    log.write_text("\n".join([*echoes, cause, *echoes]))
    found = examine_logs([log])
    assert (found.failure_class, found.ranks) == ("gpu_oom", (3,))


def test_a_warning_that_no_checkpoint_was_found_is_less_than_an_error(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    warning = next(line for line, _, _ in PAIRS if "latest file" in line)
    log.write_text(f"{warning}\nstep 1\n")
    found = examine_logs([log])
    assert (found.failure_class, found.action) == ("checkpoint_incomplete", "fall_back")
    assert "pretrainctl checkpoints" in found.hint
    log.write_text(f"{warning}\nKeyError: 'weight'\n")
    assert examine_logs([log]).failure_class == "application_error"
