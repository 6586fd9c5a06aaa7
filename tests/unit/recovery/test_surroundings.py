"""What first starts on a machine run into, by lines as they were seen, and the warnings that look like them."""

from __future__ import annotations

import pytest

from pretrainctl.records.run import Diagnosis
from pretrainctl.recovery.decision import course_of, hint_of
from pretrainctl.recovery.log_diagnosis import diagnose_log
from pretrainctl.recovery.log_reading import LogReading, find_cause
from pretrainctl.recovery.placement import Placement

JUPITER = Placement(tuple(f"jpbo-001-{number:02d}" for number in range(1, 9)), 4)
HUB = (
    "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /a/b (Caused by "
    "NewConnectionError('<x>: Failed to establish a new connection: [Errno 101] Network is unreachable'))"
)
STOPS = [
    ("/p/env/bin/python: cannot execute binary file: Exec format error", "environment"),
    ("bash: line 1: ./train: cannot execute binary file: Exec format error", "environment"),
    ("OSError: [Errno 8] Exec format error: 'bin/ninja'", "environment"),
    ("slurmstepd: error: execve(): /opt/env/bin/python: Exec format error", "environment"),
    ("exec /usr/bin/python3: exec format error", "environment"),
    (
        "FATAL:   could not open image /p/x.sif: failed to retrieve path for /p/x.sif: lstat: no such file",
        "environment",
    ),
    (
        "FATAL: While x: could not open image y: the image's architecture (amd64) could not run on the host's (arm64)",
        "environment",
    ),
    ("FATAL:   container creation failed: mount /p->/p error: while mounting /p", "environment"),
    ("FATAL:   Unable to handle docker://a/b uri: failed to get checksum", "environment"),
    ("slurmstepd-sp-0016: error: pyxis: couldn't start container", "environment"),
    ("srun: error: lrdn0001: task 0: Illegal instruction (core dumped)", "environment"),
    ("ERROR: torch-2.4.0-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.", "environment"),
    ("OSError: libcudart.so.12: cannot open shared object file: No such file or directory", "environment"),
    ("OSError: /env/libtorch_global_deps.so: cannot open shared object file: No such file", "environment"),
    ("python: symbol lookup error: /env/lib/libx.so: undefined symbol: ncclCommRegister", "environment"),
    ("Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open", "environment"),
    ("AssertionError: Torch not compiled with CUDA enabled", "environment"),
    ("RuntimeError: Error building extension 'fused_adam'", "environment"),
    ("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.", "environment"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "environment"),
    ('Lmod has detected the following error: The following module(s) are unknown: "CUDA/99"', "environment"),
    ("ERROR: Unable to locate a modulefile for 'cuda/99'", "environment"),
    ("slurmstepd: error: execve(): train: No such file or directory", "environment"),
    ("srun: error: cannot find mpi plugin for mpi/pmix_v9", "environment"),
    ("python: can't open file '/p/train.py': [Errno 2] No such file or directory", "config"),
    ("mkdir: cannot create directory '/gpfs/x': Permission denied", "environment"),
    ("/var/spool/slurmd/job1/slurm_script: line 12: ./train.sh: Permission denied", "environment"),
    ("lrdn0002: Permission denied (publickey,password).", "environment"),
    ("srun: error: Unable to create step for job 9: More processors requested than permitted", "config"),
    (
        "srun: error: Task launch for StepId=7.0 failed on node cn1: Unable to satisfy cpu bind request",
        "config",
    ),
    ("FATAL:   Unable to handle docker://a/b uri: write /home/x/.apptainer: disk quota exceeded", "quota"),
    ("FATAL:   While x: unable to create new build: mkdir /tmp/b: no space left on device", "filesystem"),
    ("srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.", "config"),
    (f"urllib3.exceptions.MaxRetryError: {HUB}", "environment"),
    (f"requests.exceptions.ConnectionError: {HUB}", "environment"),
    ("OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it", "environment"),
    ("huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate it", "environment"),
    ("ConnectionError: Connection error, and we cannot find the requested files in the cached path.", "environment"),
    ("ConnectionError: Couldn't reach 'allenai/c4' on the Hub (LocalEntryNotFoundError)", "environment"),
    ("OSError: Can't load tokenizer for 'gpt2'. If you were trying to load it from the hub", "environment"),
    ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "environment"),
    ("ERROR: No matching distribution found for einops", "environment"),
    ("fatal: unable to access 'https://github.com/a/b.git/': Could not resolve host: github.com", "environment"),
    ("curl: (6) Could not resolve host: example.org", "environment"),
    ("wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[k])", "environment"),
    ("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", "environment"),
    ("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'", "config"),
    ("OSError: /p/model does not appear to have a file named config.json.", "config"),
    ("ValueError: Error: environment variable MASTER_ADDR expected, but not set", "config"),
    ("a1:7:8 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found", "environment"),
    (
        "a1:7:8 [0] init.cc:9 NCCL WARN Mismatched NCCL version detected : rank 1 version 2 rank 0 version 3",
        "environment",
    ),
    ("a1:7:8 [0] init.cc:9 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000", "config"),
    ("a1:7:8 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ub (size 9637888)", "config"),
    ("a1:7:8 [0] NCCL WARN Error: failed to extend /dev/shm/nccl-Ub to 9637892 bytes", "config"),
    ("a1:7:8 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory", "environment"),
    (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 64: Resource temporarily unavailable",
        "environment",
    ),
    ("RuntimeError: can't start new thread", "environment"),
    ("OSError: AF_UNIX path too long", "environment"),
    ("OSError: [Errno 37] No locks available", "environment"),
]
GO_ON = [
    ("srun: error: Task launch for StepId=7.0 failed on node jpbo-001-03: Invalid job credential", "boot_failure"),
    ("RuntimeError: Timed out after 1801 seconds waiting for clients. 31/32 clients joined.", "collective_timeout"),
    (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect",
        "collective_timeout",
    ),
    ("jpbo-001-02:7:8 [0] enqueue.cc:1 NCCL WARN Cuda failure 2 'out of memory'", "gpu_oom"),
    ("jpbo-001-02:7:8 [0] enqueue.cc:1 NCCL WARN Cuda failure 'out of memory'", "gpu_oom"),
    ("filelock._error.Timeout: The file lock '/home/x/.cache/a.lock' could not be acquired.", "filesystem"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/home/x/.triton/cache/a/b.json.tmp'", "filesystem"),
]
HARMLESS = [
    "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': cannot open shared object file",
    "a1:7:8 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file",
    f"WARNING:urllib3.connectionpool:Retrying (Retry(total=2)) after connection broken by {HUB}",
    "FATAL: the option is unknown to psql",
    "find: '/proc/1/fd': Permission denied",
]


def diagnose(*lines: str, placement: Placement = JUPITER) -> Diagnosis:
    reading = LogReading()
    for number, line in enumerate(lines, 1):
        reading.add(line, number=number)
    return diagnose_log(reading, placement)


@pytest.mark.parametrize(("line", "kind"), STOPS)
def test_what_stays_until_a_person_acts(line: str, kind: str) -> None:
    found = diagnose("step", line, "ncclSystemError: System call failed", placement=Placement())
    assert (found.failure_class, course_of(found).value) == (kind, "stop")
    assert line in found.message


@pytest.mark.parametrize(("line", "kind"), GO_ON)
def test_what_may_pass(line: str, kind: str) -> None:
    found = diagnose("torch.distributed.elastic: error of a peer", line)
    assert found.failure_class == kind
    assert course_of(found).value != "stop"


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_survived_names_no_cause(line: str) -> None:
    finding = find_cause([line], stepped=False)
    assert finding is None or finding.signature.weight == "echo"


def test_another_processor_is_said_so() -> None:
    for line, _ in STOPS[:5]:
        assert "another processor" in hint_of(diagnose(line))
    assert "HF_HUB_OFFLINE" in hint_of(diagnose(f"OSError: {HUB}"))


@pytest.mark.parametrize("module", ["urllib3.exceptions.MaxRetryError", "h5py.h5.H5Error", "boto3.x1.Boto3Error"])
@pytest.mark.parametrize("text", [HUB, "CUDA error: uncorrectable ECC error encountered"])
@pytest.mark.parametrize("placement", [JUPITER, Placement()])
def test_an_error_is_no_node(module: str, text: str, placement: Placement) -> None:
    assert diagnose(f"17: {module}: {text}", placement=placement).nodes == (("jpbo-001-05",) if placement.nodes else ())
    assert diagnose(f"{module}: {text}", placement=placement).nodes == ()


def test_a_broken_gpu_of_a_module_leaves_no_node_out() -> None:
    found = diagnose("botocore3.x1: CUDA error: uncorrectable ECC error", placement=Placement())
    assert (found.failure_class, found.nodes, course_of(found).value) == ("gpu_hardware", (), "restart")


def test_a_node_of_another_job_is_none_of_this_one() -> None:
    line = "srun: error: Node failure on jpbo-009-01"
    assert diagnose(line).nodes == ()
    assert diagnose(line.replace("009", "001")).nodes == ("jpbo-001-01",)
    assert diagnose(line, placement=Placement()).nodes == ("jpbo-009-01",)
    assert diagnose("17: x2: CUDA error: uncorrectable ECC error").nodes == ("jpbo-001-05",)


def test_a_step_that_is_refused_names_no_node_to_leave_out() -> None:
    found = diagnose("srun: error: Unable to create step for job 99: Memory required by task is not available")
    assert (found.failure_class, found.nodes, course_of(found).value) == ("boot_failure", (), "restart")
    assert "pause" in hint_of(found)
    assert "nothing to do" not in hint_of(found)
    named = diagnose(GO_ON[0][0])
    assert (named.nodes, course_of(named).value) == (("jpbo-001-03",), "exclude_node")


def test_who_waited_is_not_who_was_waited_for() -> None:
    found = diagnose(
        "jpbo-001-01: [rank0]: torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. "
        "31/32 clients joined."
    )
    assert (found.failure_class, found.nodes, found.ranks) == ("collective_timeout", (), ())


def test_nccl_s_own_memory_and_what_torch_makes_of_it() -> None:
    found = diagnose(
        "ValueError: caught and printed",
        "jpbo-001-02:7:8 [0] enqueue.cc:1 NCCL WARN Cuda failure 2 'out of memory'",
        "5: [rank5]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, unhandled cuda error, NCCL 2.20.5",
    )
    assert (found.failure_class, found.nodes) == ("gpu_oom", ("jpbo-001-02",))


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: Unable to locate a modulefile for 'cuda/99'",
        "mkdir: cannot create directory '/gpfs/x': Permission denied",
        "curl: (6) Could not resolve host: example.org",
    ],
)
def test_what_a_script_survives_is_less_than_an_error(line: str) -> None:
    assert diagnose(line).failure_class == "environment"
    assert diagnose(line, "[rank3]: KeyError: 'weight'").failure_class == "application_error"


def test_a_download_that_failed_is_less_than_a_root() -> None:
    oom = "[rank3]: torch.OutOfMemoryError: CUDA out of memory."
    assert diagnose(f"requests.exceptions.ConnectionError: {HUB}", oom).failure_class == "gpu_oom"
    assert find_cause([f"requests.exceptions.ConnectionError: {HUB}"], stepped=True).signature.weight == "error"  # type: ignore[union-attr]


@pytest.mark.parametrize("loss", ["lm loss: nan | loss scale: 1.0 | grad norm: nan |", "lm loss: NAN | grad norm: nan"])
def test_a_loss_and_a_gradient_that_are_no_numbers(loss: str) -> None:
    found = diagnose(f" iteration 71/ 100 | consumed samples: 9088 | {loss} number of nan iterations:   0 |")
    assert (found.failure_class, course_of(found).value) == ("divergence", "stop")
