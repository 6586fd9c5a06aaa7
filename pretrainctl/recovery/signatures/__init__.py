"""What log lines say about why a program ended. One table: a new failure is one entry and a case beside it.

A *root* names a cause. A *symptom* tells that something went wrong, and not what: a collective that times out. An
*error* is any exception line: it may have been caught and printed. An *echo* is what peers and tools print *because*
something else went wrong (a connection that closes): it is never the cause. On one line the first entry that fits
counts, so what is special stands before what is general. `log_reading` says which line of a log wins.
"""

from __future__ import annotations

from pretrainctl.recovery.signatures.accelerators import ACCELERATORS
from pretrainctl.recovery.signatures.consequences import CONSEQUENCES
from pretrainctl.recovery.signatures.contract import Confidence, Signature, Weight
from pretrainctl.recovery.signatures.crashes import CRASHES
from pretrainctl.recovery.signatures.frameworks import FRAMEWORKS
from pretrainctl.recovery.signatures.machine import MACHINE
from pretrainctl.recovery.signatures.network import NETWORK
from pretrainctl.recovery.signatures.program import PROGRAM
from pretrainctl.recovery.signatures.storage import STORAGE
from pretrainctl.recovery.signatures.surroundings import SURROUNDINGS
from pretrainctl.recovery.signatures.xids import XIDS

__all__ = ["CLUES", "SIGNATURES", "Confidence", "Signature", "Weight"]

SIGNATURES: tuple[Signature, ...] = (
    *SURROUNDINGS,
    *NETWORK,
    *STORAGE,
    *ACCELERATORS,
    *XIDS,
    *PROGRAM,
    *FRAMEWORKS,
    *MACHINE,
    *CRASHES,
    *CONSEQUENCES,
)
CLUES: tuple[str, ...] = tuple(dict.fromkeys(signature.clue for signature in SIGNATURES))
"""A line without any of these fits no signature."""
