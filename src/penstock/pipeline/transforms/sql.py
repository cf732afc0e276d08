"""The transform `sql`: a stateless query of Spark over other nodes, planned anew for every batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from penstock.pipeline.node import TransformNode
from penstock.sql.relation import read_names, texts_of_call

MEMBERSHIP = "dynamic_table_check"
"""The function that asks a dynamic table, which it names by a text."""


class SqlNode(TransformNode):
    """Rows computed from each batch of other nodes by a query of Spark: filters, projections, functions, `explode`, `UNION ALL`,
    and joins with look-ups and tables that stand still."""

    type: Literal["sql"] = Field("sql", description="`sql`")
    sql: str = Field(
        description="the query; it reads nodes by their names, as tables, and runs for each batch on its own: joins of streams, "
        "aggregates and windows are for `view`"
    )

    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        asked = (names.get(name.lower()) for name in texts_of_call(self.sql, MEMBERSHIP))
        tables = (name for name in asked if name is not None)
        return tuple(dict.fromkeys((*read_names(self.sql, names), *tables)))
