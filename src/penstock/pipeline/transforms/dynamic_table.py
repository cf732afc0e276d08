"""The node `dynamic_table`: a set of values that SQL asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from penstock.pipeline.node import TransformNode
from penstock.pipeline.transforms.sql import one_query
from penstock.sources.postgres.address import completed
from penstock.sql.relation import read_names
from penstock.transforms.dynamic_table.options import DynamicTableOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.transforms.dynamic_table.table import DynamicTable


class DynamicTableNode(DynamicTableOptions, TransformNode):
    """Keeps a set of values that changes while the pipeline runs, and that SQL asks with `dynamic_table_check('name', value)`.

    It is filled by a query over other nodes, changed from outside, or both. A row with the `_op` `d` takes its value
    out. Rows that come into it in an epoch count for all checks of that epoch. The value of a check is compared by
    what it is (the number 1 is 1.00), NULL is in no table, and a value of another kind than the table holds, such as
    text for a table of numbers, is an error.
    """

    type: Literal["dynamic_table"] = Field("dynamic_table", description="`dynamic_table`")

    @field_validator("sql")
    @classmethod
    def _is_one_query(cls, text: str | None) -> str | None:
        return None if text is None else one_query(text)

    @property
    def is_table(self) -> bool:
        return True

    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        return () if self.sql is None else read_names(self.sql, names)

    def dynamic_table(self, settings: Settings, *, name: str) -> DynamicTable:
        """Return the table that this node is."""
        if self.backend == "InMemory":
            from penstock.transforms.dynamic_table.memory import MemoryTable

            return MemoryTable(name, value_type=self.value_type or "string")
        from penstock.transforms.dynamic_table.postgres import PostgresMembers

        code = "TRANSFORM_OPTION_MISSING"
        url = completed(self.url, settings, what=f"the dynamic table {name}", code=code)
        assert self.table is not None
        return PostgresMembers(
            name, url=url, table=self.table, column=self.column, refresh=self.refresh / 1000
        )
