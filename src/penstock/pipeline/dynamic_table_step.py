"""Dynamic tables as steps: they are updated when an epoch begins, before the queries that read them are planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.step import SqlStep, Step, node_values
from penstock.spark.errors.query import translated
from penstock.transforms.dynamic_table.function import MembershipFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.pipeline.spec import NodeSpec
    from penstock.sinks.base import Target
    from penstock.transforms.base import TransformContext
    from penstock.transforms.dynamic_table.table import DynamicTable


@dataclass(frozen=True, slots=True)
class DynamicTables:
    """The dynamic tables of a group, which one function reads."""

    tables: dict[str, DynamicTable] = field(default_factory=dict)
    """Those that are open, by their names."""
    function: MembershipFunction = field(default_factory=MembershipFunction)

    def register(self, frames: Mapping[str, DataFrame]) -> None:
        """Register the function for queries over these frames, with the tables as they are now."""
        members = {name: table.members for name, table in self.tables.items()}
        for spark in {id(frame.sparkSession): frame.sparkSession for frame in frames.values()}.values():
            self.function.register(spark, members)


class DynamicTableStep(Step):
    """A dynamic table, filled by a query over other nodes when it has one."""

    reads_now = True

    def __init__(
        self,
        node: NodeSpec,
        table: DynamicTable,
        query: SqlStep | None,
        *,
        tables: DynamicTables,
        context: TransformContext,
    ) -> None:
        self._node = node
        self._table = table
        self._query = query
        self._tables = tables
        self._context = context
        self._columns: StructType | None = None
        self.nodes = (node.name,)
        self.inputs = () if query is None else query.inputs

    def outputs(self) -> Mapping[str, NodeOutput]:
        if self._query is not None:
            output = self._query.outputs()[self._node.name]
            self._columns = output.schema
            with translated(where=str(self._node.place_of("sql"))):
                self._table.type_of(self._columns)
                self._refuse_other_key(output)
        return {}

    def _refuse_other_key(self, output: NodeOutput) -> None:
        """Refuse values of rows that may change: an update does not say which value the row had before, and other
        rows may have the value of a deleted row."""
        value = self._table.value_column(output.schema)
        if not output.is_keyed_by((value,)):
            keys = ", ".join(output.operation_keys)
            raise ConfigError(
                f"'{self._node.name}' is filled with '{value}' of rows that are updated and deleted by {keys}: "
                "values that no row has any more would stay",
                code="PIPELINE_KEY",
                where=str(self._node.place_of("sql")),
                hint=f"fill it from a view: SELECT DISTINCT {value} FROM ..., with type: view and primary_key: {value}",
            )

    def check(self) -> None:
        with translated(where=str(self._node.place)):
            self._table.check(self._context, self._columns)

    def open(self, target: Target) -> None:
        state = node_values(target, self._node.name)
        with translated(where=str(self._node.place)):
            self._table.open(self._context.running(target.query, state, target.status), self._columns)
        self._tables.tables[self._node.name] = self._table

    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        rows = None if self._query is None else self._query.evaluate(epoch, frames)[self._node.name]
        with translated(where=str(self._node.place)):
            self._table.update(epoch, rows)
            self._tables.register(frames)
        return {}

    def close(self) -> None:
        self._tables.tables.pop(self._node.name, None)
        self._table.close()


def plan_checks(spark: SparkSession, names: list[str], tables: DynamicTables) -> None:
    """Register the function without values, so that Spark can plan queries that call it."""
    if names:
        tables.function.plan(spark, names)
