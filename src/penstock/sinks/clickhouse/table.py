"""A table in ClickHouse: its columns, what its engine does with rows of one key and with repeated inserts, and how it
is created."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.sinks.clickhouse.client import ClickHouseClient
from penstock.sinks.clickhouse.column import (
    TableColumn,
    column_type,
    parsed,
    quoted,
    split_arguments,
    text,
    unquoted,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

VERSION, DELETED = "_version", "_deleted"
WINDOW = 10_000
"""How many inserts a table that the sink creates remembers."""

_ENGINE = re.compile(
    r"(\w+)(?:\((.*?)\))?(?: (?:ORDER|PARTITION|PRIMARY|SETTINGS|TTL|SAMPLE|COMMENT)\b|$)", re.DOTALL
)
_WINDOW = re.compile(r"\b(non_replicated|replicated)_deduplication_window = (\d+)")


@dataclass(frozen=True, slots=True)
class Table:
    """What the server says about a table."""

    name: str
    engine: str
    arguments: tuple[str, ...]
    partitioned: bool
    sorting: tuple[str, ...]
    """The expressions by which it is sorted, and by which an engine that replaces rows does so."""
    columns: tuple[TableColumn, ...]
    window: int
    """How many inserts the server remembers, to drop repeated ones; 0: none."""

    @property
    def merges(self) -> bool:
        """Whether it is of the family of tables that are kept in sorted parts."""
        return self.engine.endswith("MergeTree")

    @property
    def replaces(self) -> bool:
        """Whether the newest row of each key stays."""
        return self.engine.endswith("ReplacingMergeTree")

    @property
    def version(self) -> str | None:
        """The column that says which row of a key is newer."""
        return next(iter(self._columns_of_engine), None)

    @property
    def deleted(self) -> str | None:
        """The column that says that the row of a key is gone."""
        return self._columns_of_engine[1] if len(self._columns_of_engine) > 1 else None

    @property
    def _columns_of_engine(self) -> tuple[str, ...]:
        if not self.replaces:
            return ()
        return tuple(unquoted(argument) for argument in self.arguments if not argument.startswith("'"))

    def column(self, name: str) -> TableColumn | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)


def find_table(client: ClickHouseClient, name: str) -> Table | None:
    """Return the table of that name, `table` or `database.table`; None when it does not exist."""
    where = _where(name)
    rows = client.rows(
        f"SELECT engine, engine_full, partition_key, sorting_key FROM system.tables WHERE {where.format('name')}"
    )
    if not rows:
        return None
    row = rows[0]
    columns = client.rows(
        f"SELECT name, type, default_kind FROM system.columns WHERE {where.format('table')} ORDER BY position"
    )
    full = str(row["engine_full"])
    match = _ENGINE.match(full)
    return Table(
        name=name,
        engine=str(row["engine"]),
        arguments=tuple(split_arguments(match[2])) if match and match[2] else (),
        partitioned=bool(row["partition_key"]),
        sorting=_expressions(str(row["sorting_key"])),
        columns=tuple(
            TableColumn(column["name"], column["type"], column["default_kind"]) for column in columns
        ),
        window=_window(client, str(row["engine"]), full),
    )


def check_upsert(table: Table, keys: Iterable[str], *, columns: Iterable[str], where: str) -> None:
    """Refuse a table that does not replace rows by the key of the query, whose columns are given."""
    query_keys = tuple(keys)
    listed = ", ".join(map(quoted, query_keys))
    hint = f"a table for it has ENGINE = ReplacingMergeTree({VERSION}) ORDER BY ({listed})"
    if not table.replaces:
        raise _unfit(
            f"the engine of the table {table.name} is {table.engine}, which keeps all rows of a key",
            hint,
            where,
        )
    if set(table.sorting) != set(query_keys):
        sorting = ", ".join(table.sorting) or "nothing"
        raise _unfit(
            f"the table {table.name} replaces rows by ({sorting}), its sorting key, and the key of the query is "
            f"({', '.join(query_keys)})",
            hint,
            where,
        )
    version = table.version
    if version is None or version in set(columns):
        return
    column = table.column(version)
    if column is not None and not column.default and parsed(column.kind)[0] not in ("UInt64", "Int64"):
        raise _unfit(
            f"the version of rows in the table {table.name} is its column '{version}' "
            f"({column.kind}), which the query does not have",
            f"add a column '{version}' to the query, or give it a default in the table",
            where,
        )


def full_name(name: str) -> str:
    """A name for SQL; a dotted one is a database's."""
    return ".".join(quoted(part) for part in name.split(".", 1))


def create_table(
    client: ClickHouseClient,
    name: str,
    schema: StructType,
    *,
    keys: Iterable[str],
    upserts: bool,
    deletes: bool,
    version: str | None,
    order_by: str | None,
    partition_by: str | None,
) -> None:
    """Create a table with the columns of the query, sorted by its keys; for upserts one that replaces rows by them,
    and knows which are deleted."""
    names = tuple(keys)
    columns = [
        _declaration(field, nullable=field.name != version and (field.name not in names or field.nullable))
        for field in schema
    ]
    key_list = ", ".join(map(quoted, names))
    engine, order = "MergeTree", order_by or key_list
    if upserts:
        arguments = [version or VERSION, *([DELETED] if deletes else [])]
        engine, order = f"ReplacingMergeTree({', '.join(map(quoted, arguments))})", key_list
        if version is None:
            columns.append(f"{quoted(VERSION)} UInt64")
        if deletes:
            columns.append(f"{quoted(DELETED)} UInt8")
    client.execute(
        f"CREATE TABLE IF NOT EXISTS {full_name(name)} ({', '.join(columns)}) ENGINE = {engine}"
        + (f" PARTITION BY ({partition_by})" if partition_by else "")
        + f" ORDER BY ({order or 'tuple()'})"
        + f" SETTINGS non_replicated_deduplication_window = {WINDOW}"
        + (", allow_nullable_key = 1" if order else "")
    )


def add_columns(client: ClickHouseClient, name: str, fields: Iterable[StructField]) -> None:
    """Add columns to a table."""
    for field in fields:
        client.execute(
            f"ALTER TABLE {full_name(name)} ADD COLUMN IF NOT EXISTS {_declaration(field, nullable=True)}"
        )


def newest_version(client: ClickHouseClient, name: str, column: str) -> int:
    """Return the newest version of a row in a table, 0 when it has none."""
    rows = client.rows(f"SELECT max({quoted(column)}) AS last FROM {full_name(name)}")
    return int(rows[0]["last"] or 0)


def _declaration(field: StructField, *, nullable: bool) -> str:
    return f"{quoted(field.name)} {column_type(field.dataType, name=field.name, nullable=nullable)}"


def _unfit(message: str, hint: str, where: str) -> ConfigError:
    return ConfigError(message, code="STREAM_KEY", hint=hint, where=where)


def _where(name: str) -> str:
    database, dot, table = name.partition(".")
    if not dot:
        return f"database = currentDatabase() AND {{}} = {text(name)}"
    return f"database = {text(database)} AND {{}} = {text(table)}"


def _expressions(key: str) -> tuple[str, ...]:
    """The parts of a sorting key, with or without brackets around them.

    >>> _expressions("(a, `b c`)"), _expressions("lower(a), b"), _expressions("tuple()"), _expressions("")
    (('a', 'b c'), ('lower(a)', 'b'), (), ())
    """
    if key == "tuple()":
        return ()
    inner = key[1:-1] if key.startswith("(") and key.endswith(")") else key
    return tuple(unquoted(part) for part in split_arguments(inner))


def _window(client: ClickHouseClient, engine: str, full: str) -> int:
    """How many inserts are remembered: what the table says, or else the server."""
    if not engine.endswith("MergeTree"):
        return 0
    kind = "replicated" if engine.startswith(("Replicated", "Shared")) else "non_replicated"
    for match in _WINDOW.finditer(full):
        if match[1] == kind:
            return int(match[2])
    rows = client.rows(
        f"SELECT value FROM system.merge_tree_settings WHERE name = '{kind}_deduplication_window'"
    )
    return int(rows[0]["value"]) if rows else 0
