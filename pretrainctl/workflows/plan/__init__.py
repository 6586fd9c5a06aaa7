"""Plan: recipe + profile -> every number worked out, what the site would refuse refused. Asks no machine."""

from pretrainctl.workflows.plan.make import list_catalog, make_plan

__all__ = ["list_catalog", "make_plan"]
