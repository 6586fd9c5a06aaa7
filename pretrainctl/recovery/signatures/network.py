"""What the libraries of the network between nodes say: NCCL and its plugins, UCX, libfabric, MPI."""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, echo, root

__all__ = ["NETWORK", "PEER"]

_UCX = "openucx/ucx: ib_mlx5_log.c"
_SHM_FULL = "openucx/ucx#1037, openucx/ucx#9347"
_CXI = "ofiwg/libfabric: prov/cxi"
_NCCL = "NVIDIA/nccl: src/misc/ibvwrap.cc, src/misc/socket.cc, src/transport/nvls.cc"
_TORCH = "pytorch/pytorch: torch/csrc/distributed/c10d"
_SHM = "fewer loader workers, or a larger /dev/shm on the node or in the container"
PEER = (
    "who prints it may be sound, and the peer gone: see first whether the node at the other end is up and which of its "
    "ranks ended"
)
_BETWEEN = "a transfer between nodes failed"

NETWORK: tuple[Signature, ...] = (
    root(
        "UCX",
        r"UCX +ERROR .*(?:/dev/shm|shared memory limits)",
        "config",
        "shared memory is used up",
        _SHM_FULL,
        hint=_SHM,
    ),
    root(
        "UCX",
        r"UCX +ERROR .*failed to register .*Cannot allocate memory",
        "environment",
        "memory cannot be locked for the network",
        "openucx/ucx: src/uct/ib/base/ib_md.c",
        hint="the job needs `ulimit -l unlimited`; ask the site",
    ),
    root(
        "UCX",
        r"UCX +ERROR .*(?:completion with error|timed out)",
        "fabric",
        _BETWEEN,
        "openucx/ucx: src/uct/ib",
        weight="symptom",
        confidence="low",
        hint=PEER,
    ),
    root(
        "retry count exceeded",
        r"(?i)\b(?:transport|receiver[- ]not[- ]ready|rnr)[ -]retry count exceeded",
        "fabric",
        _BETWEEN,
        _UCX,
        weight="symptom",
        confidence="low",
        hint=PEER,
    ),
    root(
        "UNDELIVERABLE",
        r"\bPTL_UNDELIVERABLE\b|OFI poll failed .*UNDELIVERABLE",
        "fabric",
        _BETWEEN,
        _CXI,
        weight="symptom",
        confidence="low",
        hint=PEER,
    ),
    root(
        "error polling",
        r"from \S+ to: (?P<node>[\w.-]+) error polling \w+ CQ with status ",
        "fabric",
        _BETWEEN,
        "open-mpi/ompi: opal/mca/btl/openib/btl_openib_component.c",
        weight="symptom",
        confidence="low",
        hint=PEER,
    ),
    root(
        "NET/OFI",
        r"NCCL WARN NET/OFI .*completed with error",
        "fabric",
        _BETWEEN,
        "aws/aws-ofi-nccl#161",
        weight="symptom",
        confidence="medium",
    ),
    root(
        "NCCL WARN",
        r"Call to ibv_(?:modify|create)_\w+ failed(?!.*Cannot allocate memory)",
        "fabric",
        "a connection between network cards could not be made",
        _NCCL,
        weight="symptom",
        confidence="medium",
        hint="compare NCCL_IB_HCA, NCCL_IB_GID_INDEX and the state of the ports on all nodes",
    ),
    root(
        "NCCL WARN",
        r"[Cc]onnect to \S+ failed ?: ?(?:No route to host|Connection timed out|Network is unreachable)",
        "fabric",
        "a node cannot be reached over the network that NCCL chose",
        _NCCL,
        weight="symptom",
        confidence="medium",
        hint="see whether NCCL_SOCKET_IFNAME names the network that all nodes share",
    ),
    root(
        "NCCL WARN",
        r"transport/nvls\.cc:\d+ NCCL WARN Cuda failure",
        "environment",
        "NVLink SHARP of the node cannot be used",
        _NCCL,
        confidence="medium",
        hint="NCCL_NVLS_ENABLE=0 goes on without it; tell the site, whose fabric manager may not run",
        if_alone="gpu_hardware",
    ),
    root(
        "FI_CXI_RX_MATCH_MODE",
        r"FI_CXI_RX_MATCH_MODE=\S+ is required",
        "environment",
        "the network card has no more entries to match messages",
        _CXI,
        hint="FI_CXI_RX_MATCH_MODE=hybrid in the environment of the job",
    ),
    root(
        "Cassini Event Queue overflow",
        r"Cassini Event Queue overflow detected",
        "environment",
        "the network card's event queue is too small",
        _CXI,
        hint="FI_CXI_DEFAULT_CQ_SIZE=131072 in the environment of the job",
    ),
    root(
        "mlx5_core",
        r"mlx5_core \S+: .*(?:device's health compromised|mlx5_error_sw_reset)",
        "fabric",
        "a network card of the node failed",
        "Linux: drivers/net/ethernet/mellanox/mlx5/core/health.c",
        confidence="medium",
    ),
    root(
        "locked memory",
        r"failed to initialize while trying to allocate some locked memory",
        "environment",
        "memory cannot be locked for the network",
        "open-mpi/ompi: help-mpi-btl-openib.txt",
        hint="the job needs `ulimit -l unlimited`; ask the site",
    ),
    # no file is named: it is a socket that timed out
    root(
        "rror",
        r"(?:TimeoutError|OSError): \[Errno 110\] Connection timed out\s*$",
        "fabric",
        "a node did not answer over the network",
        "errno(3), as Python prints it for a socket",
        weight="symptom",
        confidence="medium",
    ),
    root(
        "rror",
        r"(?:DistStoreError: |store->get\([^)]*\) got error: )(?:wait timeout after \d+ms|Socket Timeout)",
        "collective_timeout",
        "ranks waited in vain for what another was to tell them",
        f"{_TORCH}/TCPStore.cpp",
        weight="symptom",
        confidence="medium",
    ),
    # what others print when a peer is gone
    *(
        echo(clue, pattern, source)
        for clue, pattern, source in (
            ("ailed to recv, got", r"[Ff]ailed to recv, got \d+ bytes", f"{_TORCH}/Utils.hpp"),
            ("recvValue failed", r"recvValue failed on SocketImpl", f"{_TORCH}/TCPStore.cpp"),
            ("NCCL operations have failed", r"Some NCCL operations have failed or timed out", _TORCH),
            ("rror", r"NCCL Error [26]: |NCCL communicator encountered error set by ProcessGroupNCCL", _TORCH),
            ("NCCL WARN", r"socketProgress\w*: Connection closed by remote peer", _NCCL),
            ("MPI_ABORT", r"MPI_ABORT was invoked on rank \d+", "open-mpi/ompi: help-mpi-api.txt"),
        )
    ),
)
