"""Known mistakes of hand-written batch scripts: pure functions of the text, and of a profile where there is one."""

from __future__ import annotations

from pretrainctl.linting import ending, internet, launching, network, queues, ranks, requests, script, site
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Finding, Rule
from pretrainctl.schema import ClusterProfile

__all__ = ["RULES", "Finding", "check"]

RULES: tuple[Rule, ...] = (
    *requests.RULES,
    *launching.RULES,
    *ranks.RULES,
    *ending.RULES,
    *network.RULES,
    *queues.RULES,
    *site.RULES,
    *internet.RULES,
)
"""Every mistake that is known."""


def check(text: str, profile: ClusterProfile | None = None) -> tuple[Finding, ...]:
    """What is wrong with a batch script, by line; without a profile nothing is said about a site's own rules."""
    batch = Batch(script.read(text), profile)
    found = [finding for rule in RULES for finding in rule.check(batch)]
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.rule)))
