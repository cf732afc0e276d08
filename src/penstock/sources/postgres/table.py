"""What PostgreSQL says about a table: its columns with their types, its key, and how changes tell its rows apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.data.operation import OPERATION
from penstock.errors import ConfigError, suggest
from penstock.sources.postgres.column import TableColumn, chosen_type, spark_type

if TYPE_CHECKING:
    import psycopg

Identity = Literal["default", "full", "index", "nothing"]
_IDENTITIES: Mapping[str, Identity] = {"d": "default", "f": "full", "i": "index", "n": "nothing"}
_COLUMNS = """
SELECT a.attname, format_type(b.oid, b.mod), a.atttypid::int8, a.atttypmod, t.typname, b.mod, t.typlen, t.typcategory, e.typname,
  a.attstorage IN ('x', 'e', 'm') AND t.typlen = -1, a.attgenerated <> '', a.attnotnull,
  CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END
FROM pg_attribute AS a
CROSS JOIN LATERAL (
  WITH RECURSIVE base(oid, mod, depth) AS (
    SELECT a.atttypid, a.atttypmod, 0
    UNION ALL
    SELECT d.typbasetype, CASE WHEN d.typtypmod >= 0 THEN d.typtypmod ELSE base.mod END, depth + 1
    FROM base JOIN pg_type AS d ON d.oid = base.oid AND d.typtype = 'd')
  SELECT oid, mod FROM base ORDER BY depth DESC LIMIT 1) AS b
JOIN pg_type AS t ON t.oid = b.oid
LEFT JOIN pg_type AS e ON t.typcategory = 'A' AND e.oid = t.typelem
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXES = """
SELECT i.indisprimary, i.indisreplident, array_agg(a.attname::text ORDER BY k.place)
FROM pg_index AS i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND k.place <= i.indnkeyatts AND (i.indisprimary OR i.indisreplident)
GROUP BY i.indexrelid, i.indisprimary, i.indisreplident
"""
_LAYOUT = """
SELECT CASE WHEN NOT attisdropped THEN attname::text END FROM pg_attribute WHERE attrelid = %s AND attnum > 0 ORDER BY attnum
"""
_LEAVES = "SELECT relreplident FROM pg_partition_tree(%s) JOIN pg_class ON oid = relid WHERE isleaf"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the source reads it."""

    oid: int
    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    """Those that are read."""
    others: tuple[str, ...]
    """Those that are not."""
    key: tuple[str, ...]
    identity: Identity
    identity_columns: tuple[str, ...]
    is_partitioned: bool
    is_table: bool
    """Rather than a view or a foreign table."""
    looked_up_at: int = 0
    """The position of the log before this was read: rows from before it may have an older shape."""
    layout: tuple[str | None, ...] = ()
    """The names of all columns in the order in which they came to the table; None is one that was dropped."""

    @property
    def display(self) -> str:
        """Its name for people."""
        return f"{self.schema}.{self.name}"

    @property
    def ddl(self) -> str:
        """Its columns as Spark declares them."""
        return ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """As values that JSON has."""
        names = TableColumn.__slots__
        columns = [{name: getattr(column, name) for name in names} for column in self.columns]
        return {**{name: getattr(self, name) for name in Table.__slots__}, "columns": columns}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Table:
        """The table of `to_json`."""
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list | tuple)}
        columns = tuple(TableColumn(**column) for column in values["columns"])
        return cls(**{**values, **lists, "columns": columns})


def find_table(
    connection: psycopg.Connection,
    table: str,
    *,
    schema: str | None = None,
    columns: Sequence[str] = (),
    key: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    where: str,
) -> Table:
    """Look a table up; ConfigError when it is not there, or has not the columns that are asked for."""
    path = [part for part in ([schema] if schema is not None else []) + table.split(".") if part]
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in path)
    row = connection.execute(
        "SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text FROM pg_class AS c "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        (quoted,),
    ).fetchone()
    if row is None:
        raise _missing(connection, ".".join(path), where)
    oid, namespace, name, relkind, replident = row
    table_columns = [_column(*values) for values in connection.execute(_COLUMNS, (oid,))]
    indexes = connection.execute(_INDEXES, (oid,)).fetchall()
    primary = next((tuple(names) for is_primary, _, names in indexes if is_primary), ())
    identity: Identity = _IDENTITIES[replident]
    if relkind == "p":
        # Each partition has its own; the weakest decides what a change may lack.
        leaves = {_IDENTITIES[leaf[0]] for leaf in connection.execute(_LEAVES, (oid,))}
        order: tuple[Identity, ...] = ("nothing", "index", "default", "full")
        identity = next((kind for kind in order if kind in leaves), identity)
    replica = next((tuple(names) for _, is_replica, names in indexes if is_replica), ())
    names = [column.name for column in table_columns]
    _require_columns([*columns, *key, *(types or {})], names, f"{namespace}.{name}", where)
    chosen = [column for column in table_columns if not columns or column.name in {*columns, *key}]
    return Table(
        oid=oid,
        schema=namespace,
        name=name,
        columns=tuple(
            replace(column, type=chosen_type(column.name, column.type, types[column.name]))
            if types and column.name in types
            else column
            for column in chosen
        ),
        others=tuple(column.name for column in table_columns if column not in chosen),
        key=tuple(key) or primary,
        identity=identity,
        identity_columns=primary if identity == "default" else replica if identity == "index" else (),
        is_partitioned=relkind == "p",
        is_table=relkind in "rpm",
        layout=tuple(attribute for (attribute,) in connection.execute(_LAYOUT, (oid,))),
    )


def require_key(table: Table, *, where: str) -> None:
    """Refuse a table without a key, or whose key is not read."""
    if not table.key:
        raise ConfigError(
            f"the table {table.display} has no primary key",
            code="SOURCE_KEY",
            where=where,
            hint="name the columns that tell its rows apart: primary_key: ...",
        )
    _require_columns(table.key, [column.name for column in table.columns], table.display, where)


def refuse_operation_column(table: Table, *, where: str) -> None:
    """Refuse a column whose name is that of the operation of a change."""
    if any(column.name == OPERATION for column in table.columns):
        raise ConfigError(
            f"the table {table.display} has a column {OPERATION}, in which the source says what happened to a row",
            code="SOURCE_COLUMN",
            where=where,
            hint="leave it out: columns: ...",
        )


def _column(
    name: str,
    kind: str,
    oid: int,
    modifier: int,
    base: str,
    base_modifier: int,
    length: int,
    category: str,
    element: str | None,
    is_large: bool,
    is_generated: bool,
    is_required: bool,
    missing: str | None,
) -> TableColumn:
    # int2vector and oidvector are arrays to the catalog, and written without braces.
    element = element if category == "A" and length == -1 and not base.endswith("vector") else None
    return TableColumn(
        name=name,
        kind=kind,
        oid=oid,
        modifier=modifier,
        type=spark_type(base, base_modifier, element=element),
        is_large=is_large,
        is_generated=is_generated,
        is_required=is_required,
        missing=missing,
    )


def _missing(connection: psycopg.Connection, name: str, where: str) -> ConfigError:
    names = connection.execute(
        "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname ELSE n.nspname || '.' || c.relname END FROM pg_class AS c "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') "
        "AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') LIMIT 1000"
    ).fetchall()
    return ConfigError(
        f"there is no table {name}",
        code="SOURCE_TABLE_MISSING",
        where=where,
        hint=suggest(name, [row[0] for row in names], what="table"),
    )


def _require_columns(wanted: Sequence[str], names: Sequence[str], table: str, where: str) -> None:
    for name in wanted:
        if name not in names:
            raise ConfigError(
                f"the table {table} has no column '{name}'",
                code="SOURCE_COLUMN",
                where=where,
                hint=suggest(name, names, what="column"),
            )
