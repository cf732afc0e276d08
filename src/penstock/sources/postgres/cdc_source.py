"""The rows of a table of PostgreSQL, and then every change of it, by logical replication."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.operation import OPERATION
from penstock.sources.base import ExternalResource, Source, SourceContext, SourceFrame
from penstock.sources.postgres import client, slot
from penstock.sources.postgres.client import lsn_number
from penstock.sources.postgres.data_source import CHANGES, stream_of
from penstock.sources.postgres.follow import Following
from penstock.sources.postgres.options import PostgresCdcOptions
from penstock.sources.postgres.slot import Slot, slot_name
from penstock.sources.postgres.snapshot import TableReading
from penstock.sources.postgres.source import look_up
from penstock.sources.postgres.table import Table, refuse_operation_column, require_key
from penstock.sources.require import require_package

if TYPE_CHECKING:
    from typing import Self

    from penstock.config import Settings


class PostgresCdcSource(Source):
    """Follows a table: first its rows, then inserts, updates and deletes, with what happened to a row in `_op`."""

    Options = PostgresCdcOptions
    location: ClassVar[str | None] = "table"

    options: PostgresCdcOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("psycopg", extra="postgres")
        super().__init__(options, settings)
        self._name: str | None = None
        self._table: Table | None = None

    @property
    def kind(self) -> str:
        return "postgres_cdc"

    def named(self, pipeline: str, node: str) -> Self:
        """Return the source as a node of a pipeline, whose slot has the names of both."""
        named = copy.copy(self)
        named._name = slot_name(pipeline, node)
        return named

    @property
    def slot(self) -> Slot:
        """The slot that it reads, by its name: that of the options, or of the node, or of the table."""
        options = self.options
        name = options.slot or self._name or slot_name(*filter(None, (options.namespace, options.table)))
        return Slot(
            name,
            publication=options.publication or name,
            create=options.create,
            full=options.replica_identity == "full",
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell rows apart: those of the options, or the table's own primary key."""
        return (self._table or self._look_up()[0]).key

    def check(self) -> None:
        """Called by a dry run: connect, and look whether the table can be followed; it changes nothing."""
        self._look_up()

    @property
    def external_resource(self) -> ExternalResource | None:
        if not self.options.create:
            return None
        own = self.slot
        publication = {"publication": own.publication} if self.options.publication is None else {}
        return ExternalResource(
            f"replication slot {own.name}",
            kind=self.kind,
            where=client.location(self.options.url),
            names={"slot": own.name, **publication},
            cost="the server keeps its log for it",
        )

    def reset(self) -> bool:
        """Drop the slot and its publication, as far as the source makes them."""
        resource = self.external_resource
        return resource is not None and self.remove(resource, self.options.url)

    @classmethod
    def remove(cls, resource: ExternalResource, url: str) -> bool:
        return slot.drop(url, resource.names["slot"], resource.names.get("publication"))

    def read(self, context: SourceContext) -> SourceFrame:
        reading, following = self.plan()
        following = replace(following, ends=context.ends)
        definition = json.dumps({"reading": reading.to_text(), "following": asdict(following)})
        ddl = f"{reading.table.ddl}, `{OPERATION}` string"
        return SourceFrame(stream_of(context.spark, CHANGES, ddl, url=reading.url, definition=definition))

    def plan(self) -> tuple[TableReading, Following]:
        """Look the table up, and return what is read and how it is followed."""
        options = self.options
        table, row_filter = self._look_up()
        reading = TableReading(
            url=options.url,
            table=table,
            specials=options.special_values,
            condition=row_filter,
            partitions=options.partitions,
            seconds=options.retry_for / 1000,
            operation=True,
        )
        following = Following(
            self.slot,
            on_truncate=options.on_truncate,
            snapshot=options.snapshot == "initial",
            max_rows=options.max_rows,
        )
        return reading, following

    def _look_up(self) -> tuple[Table, str | None]:
        where = client.location(self.options.url)
        try:
            with client.connect(self.options.url) as connection:
                # Before the columns: a change of the table between the two is then seen as one, and not as an old shape.
                row = connection.execute(
                    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn() END::text"
                ).fetchone()
                table = look_up(connection, self.options, where=where)
                require_key(table, where=where)
                refuse_operation_column(table, where=where)
                row_filter = slot.check(connection, self.slot, table, where=where)
        except Exception as error:
            client.raise_translated(error, where=where)
        position = row[0] if row is not None else None
        self._table = replace(table, looked_up_at=0 if position is None else lsn_number(position))
        return self._table, row_filter
