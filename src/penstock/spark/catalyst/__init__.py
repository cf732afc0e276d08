"""Plan a view with Catalyst: SQL or a DataFrame in, a `penstock.plan.node.View` out."""

from penstock.spark.catalyst.leaves import OverLeaf, over_leaf
from penstock.spark.catalyst.planner import PlannedView, Relation, Static, filtered, plan_view, table

__all__ = ["OverLeaf", "PlannedView", "Relation", "Static", "filtered", "over_leaf", "plan_view", "table"]
