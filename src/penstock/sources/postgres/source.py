"""The rows of a table of PostgreSQL, once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.postgres import client
from penstock.sources.postgres.data_source import SNAPSHOT, stream_of
from penstock.sources.postgres.options import PostgresOptions, TableOptions
from penstock.sources.postgres.snapshot import TableReading
from penstock.sources.postgres.table import Table, find_table
from penstock.sources.require import require_package

if TYPE_CHECKING:
    import psycopg

    from penstock.config import Settings


class PostgresSource(Source):
    """Reads a table by ranges of its key, side by side, in one consistent snapshot."""

    Options: ClassVar[type[TableOptions]] = PostgresOptions
    location: ClassVar[str | None] = "table"

    options: PostgresOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("psycopg", extra="postgres")
        super().__init__(options, settings)
        self._table: Table | None = None

    def check(self) -> None:
        """Called by a dry run: connect, look the table up and try the filter; it changes nothing."""
        self._look_up()

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell rows apart: those of the options, or the table's own primary key; empty when there is none."""
        return (self._table or self._look_up()).key

    def read(self, context: SourceContext) -> SourceFrame:
        reading = self.plan()
        frame = stream_of(
            context.spark, SNAPSHOT, reading.table.ddl, url=reading.url, definition=reading.to_text()
        )
        return SourceFrame(frame)

    def plan(self) -> TableReading:
        """Look the table up, and return what is read."""
        options = self.options
        return TableReading(
            url=options.url,
            table=self._look_up(),
            specials=options.special_values,
            condition=options.filter,
            partitions=options.partitions,
            seconds=options.retry_for / 1000,
        )

    def greatest(self, cursor: str) -> str | None:
        """Return the greatest value of a column now as text, times in UTC; None when there are no rows."""
        from psycopg import sql

        table = self._look_up()
        query = sql.SQL("SELECT max({}) FROM {} WHERE ({})").format(
            sql.Identifier(cursor),
            client.relation(table.schema, table.name),
            sql.SQL(self.options.filter or "true"),
        )
        try:
            with client.connect(self.options.url) as connection:
                row = connection.execute(query).fetchone()
        except Exception as error:
            client.raise_translated(error, where=client.location(self.options.url))
        value = None if row is None else row[0]
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return None if value is None else str(value)

    def _look_up(self) -> Table:
        where = client.location(self.options.url)
        try:
            with client.connect(self.options.url) as connection:
                self._table = look_up(connection, self.options, where=where)
                self._try_filter(connection, self._table)
        except Exception as error:
            client.raise_translated(error, where=where)
        return self._table

    def _try_filter(self, connection: psycopg.Connection, table: Table) -> None:
        from psycopg import sql

        condition = sql.SQL(self.options.filter or "true")
        names = client.column_list(column.name for column in table.columns)
        # EXPLAIN plans the query, and so checks names, types and rights.
        connection.execute(
            sql.SQL("EXPLAIN SELECT {} FROM {} WHERE ({})").format(
                names, client.relation(table.schema, table.name), condition
            )
        )


def look_up(connection: psycopg.Connection, options: TableOptions, *, where: str) -> Table:
    """Return the table that the options name."""
    return find_table(
        connection,
        options.table,
        schema=options.namespace,
        columns=options.columns,
        key=options.primary_key,
        types=options.types,
        where=where,
    )
