"""What people type: strict, frozen models; an unknown key is an error, the meaning is under each field."""

from pretrainctl.schema.cluster import ClusterProfile, Variable
from pretrainctl.schema.plan import Estimate, Geometry, Memory, Plan, Risk, Speed
from pretrainctl.schema.recipe import Recipe
from pretrainctl.schema.site import Queue

__all__ = ["ClusterProfile", "Estimate", "Geometry", "Memory", "Plan", "Queue", "Recipe", "Risk", "Speed", "Variable"]
