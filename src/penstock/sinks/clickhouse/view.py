"""A view as a ClickHouse table: every tick is one insert of newer versions of the rows that change, and its mark is
their version.

The table is a `ReplacingMergeTree(_version, _deleted)` by the key: `SELECT ... FROM totals FINAL` reads the view. An
insert is one block, which ClickHouse stores as a whole or not at all. Changes of more than one block carry the
version of before, but for the last block, which moves the mark: until then they come again, and a row that comes
again replaces itself. A version is the tick, above the number of times that the table was brought in line as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, DataError, PenstockError
from penstock.sinks.base import Guarantee
from penstock.sinks.clickhouse import client, table
from penstock.sinks.clickhouse.chunk import insert_settings
from penstock.sinks.clickhouse.client import ClickHouseClient
from penstock.sinks.clickhouse.column import check_columns, column_type, quoted, text
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.clickhouse.table import DELETED, VERSION, Table, full_name
from penstock.sinks.key_change import by_key, summed
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget, taken

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.config import Settings

LIFE = 2**40
"""Versions of one time that the table was brought in line: 0, and one behind each tick; the last says that rows of
before are being deleted."""
BLOCK = 500_000
"""Rows of an insert; ClickHouse makes one block of up to a million."""
OWNER = "penstock view sink "
# One block, which is never left out because one like it came before: that may have been replaced since.
SETTINGS = {**insert_settings("", 1, 0), "insert_deduplication_token": "", "insert_deduplicate": "0"}


class ClickHouseViewSink(ViewSink):
    """A table with the versions of the rows of the view."""

    Options = ClickHouseOptions

    options: ClickHouseOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._address = self.options.address()
        self._client = ClickHouseClient(self._address)
        self._newest = 0
        self._life = 0
        """The version before the first one since the table was last brought in line."""

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"clickhouse table {self.options.table} in {self._address.location}, read with FINAL"

    def check(self, target: ViewTarget) -> None:
        unused = [name for name in ("version", "order_by", "partition_by") if getattr(self.options, name)]
        if unused:
            raise ConfigError(
                f"the table of a view has no option {' or '.join(unused)}",
                code="FLOW_SINK_OPTION_VALUE",
                where=self._address.location,
                hint="it is sorted by the key, and its versions are ticks",
            )
        own = {VERSION, DELETED} & set(target.names)
        if own:
            raise ConfigError(
                f"the view has a column '{min(own)}', which the table has for itself",
                code="FLOW_SINK_COLUMN",
                where=target.name,
                hint="give it another name in the view",
            )
        _declared(target)
        existing = table.find_table(self._client, self.options.table)
        if existing is not None:
            self._check_table(target, existing)
            self._refuse_taken(target)
        elif not self.options.create:
            raise DataError(
                f"there is no table {self.options.table}",
                code="SINK_TABLE_MISSING",
                where=self._address.location,
                hint="create it, or let penstock do it with create=True",
            )

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        name = self.options.table
        existing = table.find_table(self._client, name)
        if existing is None:
            columns = ", ".join(f"{quoted(column)} {kind}" for column, kind in _declared(target).items())
            self._client.execute(
                f"CREATE TABLE IF NOT EXISTS {full_name(name)} ({columns}, {VERSION} UInt64, {DELETED} UInt8) "
                f"ENGINE = ReplacingMergeTree({VERSION}, {DELETED}) ORDER BY ({', '.join(map(quoted, target.keys))}) "
                f"COMMENT {text(OWNER + target.id)}"
            )
        else:
            self._check_table(target, existing)
            self._refuse_taken(target)
            if self._owner() != target.id:
                self._client.execute(
                    f"ALTER TABLE {full_name(name)} MODIFY COMMENT {text(OWNER + target.id)}"
                )
        self._newest = table.newest_version(self._client, name, VERSION)
        self._life = self._newest // LIFE * LIFE
        mark = self._newest - self._life - 1
        return mark if self._newest and mark >= 0 else None

    def replace(self, rows: pa.Table, tick: int) -> None:
        import numpy as np

        name, columns = full_name(self.options.table), ", ".join(map(quoted, self.target.names))
        begin = self._life + LIFE
        if self._newest:
            self._client.execute(
                f"INSERT INTO {name} ({columns}, {VERSION}, {DELETED}) "
                f"SELECT {columns}, toUInt64({begin - 1}), toUInt8(1) FROM {name} FINAL"
            )
        self._insert(rows, np.zeros(rows.num_rows, np.uint8), before=begin, version=begin + tick + 1)
        self._life, self._newest = begin, begin + tick + 1 if rows.num_rows else begin - 1

    def apply(self, changes: Sequence[Change]) -> None:
        import numpy as np
        import pyarrow as pa

        change = by_key(summed(changes), self.target.keys, where=self.target.name)
        rows = pa.concat_tables([change.deleted, change.updated, change.inserted])
        deleted = np.zeros(rows.num_rows, np.uint8)
        deleted[: change.deleted.num_rows] = 1
        version = self._life + changes[-1].tick + 1
        self._insert(rows, deleted, before=self._newest, version=version)
        self._newest = version

    def forget(self, target: ViewTarget) -> None:
        if table.find_table(self._client, self.options.table) and self._owner() == target.id:
            self._client.execute(f"ALTER TABLE {full_name(self.options.table)} MODIFY COMMENT ''")

    def close(self) -> None:
        self._client.close()

    def transient(self, error: Exception) -> str | None:
        return client.transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        return client.translate(error, where=self.describe())

    def _insert(self, rows: pa.Table, deleted: Any, *, before: int, version: int) -> None:
        """Insert rows block by block; the last has the version, which is the mark."""
        import pyarrow as pa

        columns = ", ".join(map(quoted, [*self.target.names, VERSION, DELETED]))
        encoded = _encoded(rows)
        for start in range(0, rows.num_rows, BLOCK):
            block = encoded.slice(start, BLOCK)
            is_last = start + BLOCK >= rows.num_rows
            versions = pa.array([version if is_last else before] * block.num_rows, pa.uint64())
            marked = block.append_column(VERSION, versions).append_column(
                DELETED, pa.array(deleted[start : start + BLOCK], pa.uint8())
            )
            self._client.insert(f"{full_name(self.options.table)} ({columns})", marked, SETTINGS)

    def _check_table(self, target: ViewTarget, existing: Table) -> None:
        where = self._address.location
        check_columns(_schema(target), existing.columns, where=self.describe(), adds=False)
        if existing.arguments != (VERSION, DELETED) or not existing.replaces or existing.partitioned:
            raise ConfigError(
                f"the table {existing.name} is no ReplacingMergeTree({VERSION}, {DELETED}) without partitions",
                code="STREAM_KEY",
                where=where,
                hint="let penstock make it",
            )
        table.check_upsert(existing, target.keys, columns=[*target.names, VERSION], where=where)

    def _refuse_taken(self, target: ViewTarget) -> None:
        owner = self._owner()
        if target.overwrite or owner == target.id:
            return
        if owner is not None:
            raise taken(
                f"the table {self.options.table}",
                "another view or another life of this one",
                where=self._address.location,
            )
        if table.newest_version(self._client, self.options.table, VERSION):
            raise taken(f"the table {self.options.table}", None, where=self._address.location)

    def _owner(self) -> str | None:
        database, dot, name = self.options.table.partition(".")
        where = (
            f"database = {text(database)} AND name = {text(name)}"
            if dot
            else f"database = currentDatabase() AND name = {text(database)}"
        )
        rows = self._client.rows(f"SELECT comment FROM system.tables WHERE {where}")
        comment = str(rows[0]["comment"]) if rows else ""
        return comment.removeprefix(OWNER) if comment.startswith(OWNER) else None


def _schema(target: ViewTarget) -> StructType:
    """The columns of a view as Spark's types; none of them is nested."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.data.schema import to_arrow_field

    for field in target.fields:
        if field.type.startswith(("array<", "map<", "struct<", "variant", "interval")):
            raise DataError(
                f"column '{field.name}' is {field.type}, which the table of a view cannot have",
                code="SINK_TYPE",
                where=target.name,
                hint=f"cast it in the view, for example to_json({field.name})",
            )
    schema = pa.schema([to_arrow_field(field.name, field.type, field.nullable) for field in target.fields])
    spark: StructType = from_arrow_schema(schema)
    return spark


def _declared(target: ViewTarget) -> dict[str, str]:
    """The types of the columns; those of the key are never NULL."""
    return {
        field.name: column_type(field.dataType, name=field.name, nullable=field.name not in target.keys)
        for field in _schema(target)
    }


def _encoded(rows: pa.Table) -> pa.Table:
    """Rows as ClickHouse reads them: what it has no type for is text."""
    import pyarrow as pa

    for at, field in enumerate(rows.schema):
        if pa.types.is_null(field.type) or pa.types.is_time(field.type):
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.string()))
    return rows
