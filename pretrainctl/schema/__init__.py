"""What people type: strict, frozen models; an unknown key is an error, the meaning is under each field."""

from pretrainctl.schema.cluster import ClusterProfile, Queue
from pretrainctl.schema.plan import Estimate, Geometry, Plan
from pretrainctl.schema.recipe import Recipe

__all__ = ["ClusterProfile", "Estimate", "Geometry", "Plan", "Queue", "Recipe"]
