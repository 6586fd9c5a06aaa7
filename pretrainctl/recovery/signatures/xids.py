"""What the driver of NVIDIA's GPUs reports by number: which Xids end a program, and which only tell of what was mended.

Source of what each number means: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors), its Xid catalog. What to do
at once is there IGNORE for 43, 63 (rows remapped or pages retired: recorded) and 92 (many single-bit errors, which are
corrected); 154 only sums up another Xid, and where it asks to drain first, what runs goes on; 61 is a warning of old
drivers; after 64 (a row that could not be put aside) the GPU is to be reset, but no program has ended by it. All these
weigh less than any error of the program; so do an NVLink error that calls itself Nonfatal (144 to 150), and a number
that is not named here. 93, 121 and a 154 that takes a reset back tell of nothing. 13, 31 and 69 are mostly the
program's own fault. What is left ends the program, or needs a reset of the GPU or its node.
"""

from __future__ import annotations

from pretrainctl.recovery.signatures.contract import Signature, echo, root

__all__ = ["XIDS"]

_CATALOG = "NVIDIA, Xid Errors: the Xid catalog"
_SEEN = f"{_CATALOG}; NVIDIA/open-gpu-kernel-modules#507; leptonai/gpud#1160, leptonai/gpud#1174"

XIDS: tuple[Signature, ...] = (
    root(
        "Xid",
        r"\bXid \([^)]*\): (?:46|48|62|74|79|9[45]|109|110|119|120|136|14[03]|158|167|17[12])\b",
        "gpu_hardware",
        "the driver reports a hardware fault of a GPU",
        _SEEN,
    ),
    root(
        "Xid",
        r"\bXid \([^)]*\): (?:14[4-9]|150)\b(?!.*\bNonfatal\b)",
        "gpu_hardware",
        "the driver reports a broken NVLink of a GPU",
        _SEEN,
    ),
    root(
        "Xid",
        r"\bXid \([^)]*\): 154\b(?!.* to 0x[034]\b)",
        "gpu_hardware",
        "the driver says that a GPU or its node must be reset",
        _SEEN,
        confidence="medium",
    ),
    root(
        "Xid",
        r"\bXid \([^)]*\): 32\b",
        "gpu_hardware",
        "what was sent to a GPU came broken: its link is a suspect",
        _CATALOG,
        confidence="medium",
    ),
    root("Xid", r"\bXid \([^)]*\): (?:13|31|69)\b", "application_error", "a kernel read memory it may not", _SEEN),
    root(
        "Xid",
        r"\bXid \([^)]*\): 64\b",
        "gpu_hardware",
        "a broken row of a GPU's memory could not be put aside",
        _CATALOG,
        weight="symptom",
        confidence="medium",
        survivable=True,
    ),
    root(
        "Xid",
        r"\bXid \([^)]*\): (?:61|63|92|(?:14[4-9]|150)\b.*\bNonfatal|154\b.* to 0x[34])\b",
        "gpu_hardware",
        "the driver noted what a GPU mended by itself, which ends no program",
        _CATALOG,
        weight="symptom",
        confidence="low",
        hint="tell the site if it comes often on one GPU; by itself it is no reason to keep off the node",
        survivable=True,
    ),
    echo("Xid", r"\bXid \([^)]*\): (?:43|45)\b", _SEEN),
    root(
        "Xid",
        r"\bXid \([^)]*\): (?!(?:93|121|154)\b)\d+",
        "unknown",
        "the driver reports an Xid that says little by itself",
        _CATALOG,
        weight="error",
        confidence="low",
        hint="look its number up in NVIDIA's Xid catalog; tell the site if it comes again on this GPU",
        survivable=True,
    ),
)
