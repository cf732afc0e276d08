"""Plan a view with Catalyst: SQL or a DataFrame in, a `penstock.plan.node.View` out."""

from penstock.spark.catalyst.planner import Planned, Relation, Static, filtered, plan_view, table

__all__ = ["Planned", "Relation", "Static", "filtered", "plan_view", "table"]
