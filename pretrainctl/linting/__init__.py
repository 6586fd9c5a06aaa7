"""Known mistakes of hand-written batch scripts: pure functions of the text, and of a profile where there is one."""

from __future__ import annotations

from pretrainctl.linting import (
    chains,
    ending,
    internet,
    launching,
    leaving,
    network,
    queues,
    ranks,
    refusals,
    requests,
    script,
    site,
    slips,
    spread,
)
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.findings import Finding, Rule
from pretrainctl.schema import ClusterProfile

__all__ = ["RULES", "Finding", "check"]

RULES: tuple[Rule, ...] = (
    *requests.RULES,
    *refusals.RULES,
    *slips.RULES,
    *launching.RULES,
    *ranks.RULES,
    *spread.RULES,
    *ending.RULES,
    *leaving.RULES,
    *chains.RULES,
    *network.RULES,
    *queues.RULES,
    *site.RULES,
    *internet.RULES,
)
"""Every mistake that is known."""


def check(text: str, profile: ClusterProfile | None = None) -> tuple[Finding, ...]:
    """What is wrong with a batch script, by line; without a profile nothing is said about a site's own rules."""
    batch = Batch(script.read(text), profile)
    found = {(each.line, each.rule, each.reason): each for rule in RULES for each in rule.check(batch)}
    return tuple(sorted(found.values(), key=lambda finding: (finding.line, finding.rule)))
