"""Dynamic tables in PostgreSQL: one column of a table that anybody may change.

The table is read as a whole, and again only when the counters that PostgreSQL keeps of its changes have moved by more
than our own changes: these are a moment behind (about a second), so what others change is seen a moment later. They
are noted before the rows are read, so no change is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, DataError, PenstockError, suggest
from penstock.plan.node import Field
from penstock.transforms.dynamic_table.members import Members, kind_of
from penstock.transforms.dynamic_table.table import DynamicTable, changes
from penstock.transforms.lookup.keyed import retrying
from penstock.transforms.postgres_table import PostgresColumn, PostgresTable, refusal_of

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.transforms.base import TransformContext

_RETRY_SECONDS = 60.0
_NEW_COLUMN = "value"
_COUNTERS = (
    "SELECT c.oid, c.relfilenode, pg_stat_get_tuples_inserted(c.oid), pg_stat_get_tuples_updated(c.oid), "
    "pg_stat_get_tuples_deleted(c.oid), current_setting('track_counts') "
    "FROM pg_class AS c WHERE c.oid = %s::regclass AND c.relkind = 'r'"
)


@dataclass(frozen=True, slots=True)
class _Counters:
    """What PostgreSQL counts of a table."""

    oid: int
    file: int
    """Another one after a TRUNCATE."""
    inserted: int
    updated: int
    deleted: int

    def after(self, inserted: int, deleted: int) -> _Counters:
        """The same, with more rows inserted and deleted."""
        return replace(self, inserted=self.inserted + inserted, deleted=self.deleted + deleted)


class PostgresMembers(DynamicTable):
    """A set in a table."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        table: str,
        column: str | None,
        refresh: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name)
        self._url, self._name, self._wanted, self._refresh, self._clock = url, table, column, refresh, clock
        self._source = PostgresTable(url, table)
        self._column = ""
        self._query_column: str | None = None
        self._connection: psycopg.Connection | None = None
        self._declared = ""
        self._counters: _Counters | None = None
        """What PostgreSQL had counted when the rows were read."""
        self._own: list[_Counters] = []
        """What it will have counted after each of our changes since then."""
        self._read_at = 0.0

    def check(self, context: TransformContext, columns: StructType | None) -> None:
        if self._retrying(self._source.exists):
            self._describe(columns)
        elif columns is None:
            raise DataError(
                f"there is no table {self._name}",
                code="SINK_TABLE_MISSING",
                where=self._source.where,
                hint="create it with a column for the values; only a table that a query fills is made",
            )
        else:
            self.type_of(columns)
        self.close()

    def open(self, context: TransformContext, columns: StructType | None) -> None:
        if columns is not None and not self._retrying(self._source.exists):
            self._retrying(lambda: self._create(self.type_of(columns)))
        kind = self._describe(columns)
        self._query_column = None if columns is None else self.value_column(columns)
        self._members, self._counters = Members(kind), None
        self._own = []
        self._read()

    def update(self, epoch: int, rows: DataFrame | None) -> None:
        if rows is not None:
            assert self._query_column is not None, "the table has no query"
            added, removed = changes(rows, self._query_column, self.members)
            if len(added) or len(removed):
                inserted, deleted = self._retrying(lambda: self._write(added, removed))
                before = self._own[-1] if self._own else self._counters
                if before is not None:
                    self._own.append(before.after(inserted, deleted))
                self._members = self.members.apply(added, removed)
        if self._clock() - self._read_at >= self._refresh:
            self._read()

    def close(self) -> None:
        super().close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _describe(self, columns: StructType | None) -> str:
        """The type of the values in the table; refused when the query gives another kind."""
        table_columns: dict[str, PostgresColumn] = {
            column.name: column for column in self._retrying(self._source.columns)
        }
        self._column = self._wanted or next(iter(table_columns))
        if self._column not in table_columns:
            raise ConfigError(
                f"the table {self._name} has no column '{self._column}'",
                code="DYNAMIC_TABLE_COLUMNS",
                where=self._source.where,
                hint=suggest(self._column, table_columns, what="column"),
            )
        kind = table_columns[self._column].kind
        if columns is not None and kind_of(self.type_of(columns)) != kind_of(kind):
            raise DataError(
                f"the query of the dynamic table {self.name} gives {self.type_of(columns)}, and the table holds {kind}",
                code="DYNAMIC_TABLE_TYPE",
                where=self._source.where,
                hint="cast the column in the query",
            )
        kind_of(kind)
        self._declared = table_columns[self._column].declared
        return kind

    def _create(self, kind: str) -> None:
        from penstock.sinks.postgres import table

        column = self._wanted or _NEW_COLUMN
        connection = self._connected()
        with connection.transaction():
            table.lock_tables(connection)
            if table.find_table(connection, self._name) is None:
                table.create_table(connection, self._name, [Field(column, kind, False)], keys=[column])

    def _write(self, added: pa.Array, removed: pa.Array) -> tuple[int, int]:
        """Change the table; return how many rows were inserted and deleted."""
        from psycopg import sql

        connection = self._connected()
        names = {
            "table": self._source.relation(),
            "column": sql.Identifier(self._column),
            "type": sql.SQL(self._declared),
        }
        inserted = deleted = 0
        with connection.transaction():
            if len(removed):
                deleted = connection.execute(
                    sql.SQL("DELETE FROM {table} WHERE {column} = ANY (%s::{type}[])").format(**names),
                    (removed.to_pylist(),),
                ).rowcount
            if len(added):
                inserted = connection.execute(
                    sql.SQL(
                        "INSERT INTO {table} ({column}) SELECT v FROM unnest(%s::{type}[]) AS n (v) "
                        "WHERE NOT EXISTS (SELECT FROM {table} AS t WHERE t.{column} = n.v) ON CONFLICT DO NOTHING"
                    ).format(**names),
                    (added.to_pylist(),),
                ).rowcount
        return inserted, deleted

    def _read(self) -> None:
        """Read the table again if it has changed, as a step from what was read before."""
        import pyarrow.compute as pc

        self._read_at = self._clock()
        counters: _Counters | None = self._retrying(self._changed)
        if counters is not None and counters in (self._counters, *self._own):
            if counters in self._own:
                self._own = self._own[self._own.index(counters) + 1 :]
            self._counters = counters
            return
        rows = self._retrying(lambda: self._source.read_with(self._connected(), [self._column]))
        now, before = self.members.array(rows.column(0)), self.members.values()
        gone = before.filter(pc.invert(pc.is_in(before, value_set=now)))
        self._members, self._counters, self._own = self.members.apply(now, gone), counters, []

    def _changed(self) -> _Counters | None:
        """What PostgreSQL has counted; None where it counts nothing, as for a view."""
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in self._name.split("."))
        row = self._connected().execute(_COUNTERS, (quoted,)).fetchone()
        return None if row is None or row[-1] != "on" else _Counters(*row[:-1])

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._source.connect()
        return self._connection

    def _retrying(self, action: Callable[[], Any]) -> Any:
        return retrying(
            action, seconds=_RETRY_SECONDS, description=self._source.where, transient=self._transient
        )

    def _transient(self, error: Exception) -> str | None:
        refusal = error if isinstance(error, PenstockError) else refusal_of(error, self._source.where)
        if refusal is None:
            return None
        if getattr(refusal, "retryable", False):
            self._connection = None
            return refusal.message
        if refusal is error:
            return None
        raise refusal from error
