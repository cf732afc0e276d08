"""What a table of ClickHouse is before it is read: its columns, the column by which it is cut into ranges, and their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.errors import DataError, suggest
from penstock.sources.clickhouse.type_name import outer, parsed, quoted, split_arguments, text, unquoted

if TYPE_CHECKING:
    from penstock.sources.clickhouse.client import ClickHouseClient
    from penstock.sources.clickhouse.options import ClickHouseOptions

MOST_RANGES = 20_000
SAMPLES_PER_RANGE = 40
MOST_SAMPLES = 200_000
_INTEGERS = tuple(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256))
ORDERED = frozenset(
    {*_INTEGERS, "Date", "Date32", "DateTime", "DateTime64", "Decimal", "String", "UUID", "IPv4", "IPv6"}
)
"""Types whose values can bound a range: not those with NULL or NaN, which are in no range."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is there."""

    name: str
    kinds: Mapping[str, str]
    """The types of its columns, those that `SELECT *` has first."""
    visible: tuple[str, ...]
    """The columns of `SELECT *`."""
    engine: str
    sorting_key: tuple[str, ...]

    @property
    def merges(self) -> bool:
        """Whether rows replace each other when parts are merged."""
        plain = self.engine.removeprefix("Replicated").removeprefix("Shared")
        return plain.endswith("MergeTree") and plain != "MergeTree"

    def column(self, name: str, *, what: str) -> str:
        """Return the type of a column."""
        if name not in self.kinds:
            raise DataError(
                f"the table has no column '{name}' ({what})",
                code="SOURCE_COLUMN",
                where=self.name,
                hint=suggest(name, self.kinds, what="column"),
            )
        return self.kinds[name]


def find_table(client: ClickHouseClient, name: str) -> Table:
    """Look up a table or a view."""
    database, dot, table = name.partition(".")
    in_database, table = (text(database), table) if dot else ("currentDatabase()", name)
    rows = client.rows(
        f"SELECT engine, sorting_key FROM system.tables WHERE database = {in_database} AND name = {text(table)}"
    )
    if not rows:
        raise DataError(
            f"there is no table {name}",
            code="SOURCE_TABLE_MISSING",
            hint="write it as table or database.table; names of ClickHouse have upper and lower case",
        )
    columns = [
        row for row in client.rows(f"DESCRIBE TABLE {full_name(name)}") if row["default_type"] != "EPHEMERAL"
    ]
    computed = ("MATERIALIZED", "ALIAS")
    visible = tuple(row["name"] for row in columns if row["default_type"] not in computed)
    key = tuple(unquoted(part) for part in split_arguments(rows[0]["sorting_key"]))
    return Table(name, {row["name"]: row["type"] for row in columns}, visible, rows[0]["engine"], key)


def full_name(name: str) -> str:
    """A name for SQL; a dotted one is a database's."""
    return ".".join(quoted(part) for part in name.split(".", 1))


def source_of_rows(table: Table, options: ClickHouseOptions) -> str:
    """What stands behind FROM."""
    final = table.merges if options.final is None else options.final
    return f"{full_name(table.name)}{' FINAL' if final else ''}"


def bound_columns(table: Table, options: ClickHouseOptions) -> dict[str, tuple[str, str]]:
    """The columns that `start_at` and `until` bound, with their types."""
    columns = {}
    by = options.cursor or (table.sorting_key[0] if table.sorting_key else None)
    if options.start_at is not None:
        if by is None:
            raise DataError(
                "start_at needs to know the column whose least value it is, and the table has no sorting key",
                code="SOURCE_COLUMN",
                where=table.name,
                hint="add cursor",
            )
        columns["start_at"] = by, table.column(by, what="start_at")
    if options.cursor is not None:
        columns["until"] = options.cursor, table.column(options.cursor, what="cursor")
    return columns


def conditions(
    options: ClickHouseOptions, columns: Mapping[str, Sequence[str]], until: str | None
) -> list[str]:
    """Which rows of a table are read, whatever the range."""
    clauses = [] if options.filter is None else [f"({options.filter}\n)"]
    if options.start_at is not None and "start_at" in columns:
        name, kind = columns["start_at"]
        clauses.append(f"{quoted(name)} >= {literal(options.start_at, kind)}")
    if "until" in columns:
        name, kind = columns["until"]
        clauses.append("0" if until is None else f"{quoted(name)} <= {literal(until, kind)}")
    return clauses


def greatest(client: ClickHouseClient, table: Table, cursor: str) -> str | None:
    """Return the greatest value of a column as text, times in UTC; None when there are no rows."""
    kind = table.column(cursor, what="cursor")
    value = f"toString(CAST(max({quoted(cursor)}) AS {comparable(kind)}))"
    [row] = client.rows(f"SELECT count() AS rows, {value} AS value FROM {full_name(table.name)}")
    return None if int(row["rows"]) == 0 else str(row["value"])


def range_column(table: Table, options: ClickHouseOptions) -> str | None:
    """Return the column by which the table is cut into ranges; None when none is fit for it."""
    candidates = (
        *table.sorting_key[:1],
        *options.primary_key[:1],
        *((options.cursor,) if options.cursor else ()),
    )
    return next((name for name in candidates if name in table.kinds and is_ordered(table.kinds[name])), None)


def is_ordered(stored: str) -> bool:
    """Whether every value of a type is in one of the ranges that values of it bound."""
    name, arguments = outer(stored)
    return name in ORDERED or (name == "LowCardinality" and is_ordered(arguments[0]))


def comparable(stored: str) -> str:
    """The type in which values of a column are written as text and read again: times without the zone, whose clocks go back."""
    name, arguments = parsed(stored)
    if name == "DateTime":
        return "DateTime('UTC')"
    if name == "DateTime64":
        return f"DateTime64({arguments[0]}, 'UTC')"
    return f"{name}({', '.join(arguments)})" if arguments else name


def literal(value: str, stored: str) -> str:
    """A value of a column for SQL."""
    return f"CAST({text(value)} AS {comparable(stored)})"


def bounds(
    client: ClickHouseClient,
    table: Table,
    options: ClickHouseOptions,
    where: Sequence[str],
    *,
    rows_per_range: int,
) -> list[str]:
    """Return the values of the range column at which one range ends and the next begins, so that ranges have about so
    many rows."""
    name = range_column(table, options)
    if name is None:
        return []
    source = f"{full_name(table.name)}{_where(where)}"
    [counted] = client.rows(f"SELECT count() AS rows FROM {source}")
    number = min(-(-int(counted["rows"]) // rows_per_range), MOST_RANGES)
    if number < 2:
        return []
    samples = min(number * SAMPLES_PER_RANGE, MOST_SAMPLES)
    kind = comparable(table.kinds[name])
    position = f"toUInt64(length(sample) * number_of_range / {number}) + 1"
    [row] = client.rows(
        f"WITH (SELECT arraySort(groupArraySample({samples}, 1)({quoted(name)})) FROM {source}) AS sample "
        f"SELECT arrayMap(number_of_range -> toString(CAST(sample[{position}] AS {kind})), range(1, {number})) AS bounds"
    )
    return list(dict.fromkeys(row["bounds"]))


def ranges(name: str | None, ends: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ranges between bounds: `from` is in the range and `to` is not; without them it is open.

    >>> ranges("id", ["5", "9"])
    [{'column': 'id', 'to': '5'}, {'column': 'id', 'from': '5', 'to': '9'}, {'column': 'id', 'from': '9'}]
    """
    if name is None or not ends:
        return [{}]
    inner = [{"column": name, "from": low, "to": high} for low, high in pairwise(ends)]
    return [{"column": name, "to": ends[0]}, *inner, {"column": name, "from": ends[-1]}]


def range_conditions(part: Mapping[str, Any], kinds: Mapping[str, str]) -> list[str]:
    """Return which rows are in a range."""
    if not part:
        return []
    name = part["column"]
    signs = (("from", ">="), ("to", "<"))
    return [f"{quoted(name)} {sign} {literal(part[end], kinds[name])}" for end, sign in signs if end in part]


def _where(parts: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def select(columns: Sequence[str], source: str, where: Sequence[str]) -> str:
    """Return the query of some rows."""
    return f"SELECT {', '.join(columns)} FROM {source}{_where(where)}"
