"""A table in ClickHouse as it is: what its engine does with rows of one key and with inserts that come again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import ConfigError
from penstock.sinks.clickhouse.column import Existing, parsed, quoted, split_arguments, text, unquoted
from penstock.sinks.clickhouse.http import Client

VERSION = "_version"
WINDOW = 10_000
"""How many inserts a table that we make remembers."""

_ENGINE = re.compile(
    r"(\w+)(?:\((.*?)\))?(?: (?:ORDER|PARTITION|PRIMARY|SETTINGS|TTL|SAMPLE|COMMENT)\b|$)", re.DOTALL
)
_WINDOW = re.compile(r"\b(non_replicated|replicated)_deduplication_window = (\d+)")


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of a table."""

    name: str
    engine: str
    arguments: tuple[str, ...]
    partitioned: bool
    sorting: tuple[str, ...]
    """The expressions by which it is sorted, and by which rows are replaced where they are."""
    columns: tuple[Existing, ...]
    window: int
    """How many inserts the server remembers, to drop those that come again; 0: none."""

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
        names = [each for each in self.arguments if not each.startswith("'")]
        return unquoted(names[0]) if self.replaces and names else None

    def column(self, name: str) -> Existing | None:
        """The column of that name."""
        return next((each for each in self.columns if each.name == name), None)


def found(client: Client, name: str) -> Table | None:
    """The table of that name, `table` or `database.table`; None when there is none."""
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
        columns=tuple(Existing(each["name"], each["type"], each["default_kind"]) for each in columns),
        window=_window(client, str(row["engine"]), full),
    )


def refuse_upsert(table: Table, keys: Iterable[str], names: Iterable[str]) -> None:
    """Refuse a table in which rows of one key are not replaced, with the reason."""
    wanted = tuple(keys)
    listed = ", ".join(map(quoted, wanted))
    hint = f"a table for it has ENGINE = ReplacingMergeTree({VERSION}) ORDER BY ({listed})"
    if not table.replaces:
        raise _unfit(
            f"the engine of the table {table.name} is {table.engine}, which keeps all rows of a key", hint
        )
    if set(table.sorting) != set(wanted):
        sorting = ", ".join(table.sorting) or "nothing"
        raise _unfit(
            f"the table {table.name} replaces rows by ({sorting}), its sorting key, and the key of the query is "
            f"({', '.join(wanted)})",
            hint,
        )
    version = table.version
    if version is None or version in set(names):
        return
    column = table.column(version)
    if column is not None and not column.default and parsed(column.kind)[0] not in ("UInt64", "Int64"):
        raise _unfit(
            f"the version of rows in the table {table.name} is its column '{version}' ({column.kind}), which the query does not have",
            f"add a column '{version}' to the query, or give it a default in the table",
        )


def full_name(name: str) -> str:
    """A name for SQL; a dotted one is a database's."""
    return ".".join(quoted(part) for part in name.split(".", 1))


def _unfit(message: str, hint: str) -> ConfigError:
    return ConfigError(message, code="STREAM_KEY", hint=hint)


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
    return tuple(unquoted(each) for each in split_arguments(inner))


def _window(client: Client, engine: str, full: str) -> int:
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
