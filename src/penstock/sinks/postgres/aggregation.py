"""Aggregates of the rows of a table in another one, brought in line with changes of these rows in SQL.

Rows that change are noted twice: as they were with the weight -1, and as they are now with +1. Sums and counts of
exact numbers take up the sums of the weighted values, so that a change costs as much as it has rows. The least and
greatest value, and sums of floating-point numbers, take up what comes; for groups that lose a row they are computed
again from the rows of the group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, suggest
from penstock.plan.node import Field
from penstock.sinks.postgres.aggregate_options import AggregateColumn, PostgresAggregateOptions
from penstock.sinks.postgres.client import column_list, statement
from penstock.sinks.postgres.column import column_type

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

ROWS, ALL = "_rows", "_all"
DELTA, GROUPS = "penstock_delta", "penstock_groups"
WEIGHT, REMOVED = "penstock_weight", "penstock_removed"
EXACT = ("tinyint", "smallint", "int", "bigint", "decimal")
FLOATING = ("float", "double")


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column by which rows are grouped."""

    name: str
    source: str | None
    """None: all rows are one group."""
    type: str

    def value(self) -> sql.Composable:
        """Of a row."""
        from psycopg import sql

        if self.source is None:
            return sql.SQL("true")
        return statement(f"{{}}::{self.type}", sql.Identifier(self.source))


@dataclass(frozen=True, slots=True)
class StoredAggregate:
    """One aggregate, and the columns in which it is kept."""

    name: str
    fn: str
    source: str | None
    """None: rows are counted."""
    type: str
    exact: bool
    """Whether a value can be taken back from it."""

    @property
    def sum(self) -> str:
        """The column of the sum of the values."""
        return f"_{self.name}_sum"

    @property
    def count(self) -> str:
        """The column of the number of the values, without those that are NULL."""
        return self.name if self.fn == "count" else f"_{self.name}_count"

    @property
    def is_sum(self) -> bool:
        """Whether it is made of a sum and a number."""
        return self.fn in ("sum", "avg")

    @property
    def number(self) -> str:
        """The type of the sum."""
        return "numeric" if self.exact else "double precision"

    def declaration(self) -> sql.Composable:
        """Its columns; a sum and an average follow from others."""
        from psycopg import sql

        name = sql.Identifier(self.name)
        if self.fn == "count":
            return statement(f"{{}} {self.type} NOT NULL", name)
        if not self.is_sum:
            return statement(f"{{}} {self.type}", name)
        total, count = sql.Identifier(self.sum), sql.Identifier(self.count)
        value = statement("{} / {}", total, count) if self.fn == "avg" else statement("{}", total)
        return (
            statement(f"{{}} {self.number} NOT NULL, {{}} bigint NOT NULL, ", total, count)
            + statement(f"{{}} {self.type} GENERATED ALWAYS AS ((CASE WHEN {{}} > 0 THEN ", name, count)
            + value
            + sql.SQL(f" END)::{self.type}) STORED")
        )

    def written_columns(self) -> dict[str, sql.Composable]:
        """The columns that are written, with their values for rows with weights."""
        from psycopg import sql

        value = sql.Identifier(self.name)
        if self.source is None:
            return {self.count: sql.SQL(f"sum({WEIGHT})")}
        if not self.is_sum and self.fn != "count":
            kind = f"::{self.type}"
            return {self.name: statement(f"{self.fn}({{}}) FILTER (WHERE {WEIGHT} > 0){kind}", value)}
        columns: dict[str, sql.Composable] = {
            self.count: statement(f"coalesce(sum({WEIGHT}) FILTER (WHERE {{}} IS NOT NULL), 0)", value)
        }
        if self.is_sum:
            weighted = f"{{}}::numeric * {WEIGHT})" if self.exact else f"{{}}) FILTER (WHERE {WEIGHT} > 0)"
            columns[self.sum] = statement(f"coalesce(sum({weighted}, 0)::{self.number}", value)
        return columns

    def again(self) -> dict[str, sql.Composable]:
        """The columns from which nothing can be taken back, with their values for the rows of a group."""
        from psycopg import sql

        if self.exact:
            return {}
        value = sql.Identifier(self.name)
        if self.is_sum:
            return {self.sum: statement(f"coalesce(sum({{}}), 0)::{self.number}", value)}
        return {self.name: statement(f"{self.fn}({{}})::{self.type}", value)}

    def merged(self, column: str) -> sql.Composed:
        """What a column becomes when rows come to a group that is there."""
        from psycopg import sql

        name = sql.Identifier(column)
        if column == self.name and self.fn in ("min", "max"):
            choice = "LEAST" if self.fn == "min" else "GREATEST"
            return statement(f"{choice}(kept.{{}}, EXCLUDED.{{}})", name, name)
        return statement("kept.{} + EXCLUDED.{}", name, name)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """All aggregates of a table."""

    landing: str
    table: str
    groups: tuple[GroupColumn, ...]
    aggregates: tuple[StoredAggregate, ...]

    @classmethod
    def of(cls, options: PostgresAggregateOptions, fields: Iterable[Field]) -> Aggregation:
        """Return what the options say about rows with these columns; raises where they cannot work."""
        columns = {field.name: field for field in fields}
        groups = tuple(
            GroupColumn(name, field.name, result.type or column_type(field))
            for name, result in options.group_by.items()
            for field in [_field(columns, result.from_ or name)]
        )
        aggregates = tuple(_aggregate(name, result, columns) for name, result in options.aggregate.items())
        aggregation = cls(
            options.landing_table,
            options.agg_table,
            groups or (GroupColumn(ALL, None, "boolean"),),
            aggregates,
        )
        names = [group.name for group in aggregation.groups] + [ROWS]
        names += [
            column for aggregate in aggregates for column in {aggregate.name, *aggregate.written_columns()}
        ]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"the aggregate table would have the column '{twice[0]}' twice",
                code="STREAM_OPTION_VALUE",
                hint="give the group or the aggregate another name",
            )
        return aggregation

    @property
    def definition(self) -> str:
        """What the table is made of, as text that is the same for the same aggregation."""
        groups = [(group.name, group.source, group.type) for group in self.groups]
        aggregates = [
            (aggregate.name, aggregate.fn, aggregate.source, aggregate.type) for aggregate in self.aggregates
        ]
        return f"penstock aggregates of {self.landing}: {json.dumps([groups, aggregates])}"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a group."""
        return tuple(group.name for group in self.groups)

    def create(self, connection: psycopg.Connection) -> None:
        """Create the table, with the aggregates of the rows that are there."""
        from psycopg import sql

        groups = [statement(f"{{}} {group.type}", sql.Identifier(group.name)) for group in self.groups]
        parts = [*groups, *(aggregate.declaration() for aggregate in self.aggregates)]
        connection.execute(
            statement("CREATE TABLE {} (", self.table)
            + sql.SQL(", ").join(parts)
            + statement(", {} bigint NOT NULL, UNIQUE NULLS NOT DISTINCT (", sql.Identifier(ROWS))
            + column_list(self.names)
            + sql.SQL("))")
        )
        connection.execute(statement("COMMENT ON TABLE {} IS ", self.table) + sql.Literal(self.definition))
        sources = [group.source for group in self.groups if group.source is not None]
        if sources and any(aggregate.again() for aggregate in self.aggregates):
            connection.execute(
                statement("CREATE INDEX ON {} (", self.landing) + column_list(sources) + sql.SQL(")")
            )
        self.begin(connection)
        self.note(connection, weight=1)
        self.apply(connection)

    def begin(self, connection: psycopg.Connection) -> None:
        """Have a table for the changes of this transaction."""
        from psycopg import sql

        connection.execute(
            statement("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT ", DELTA)
            + self._values()
            + sql.SQL(f", 1 AS {WEIGHT} FROM ")
            + statement("{} WITH NO DATA", self.landing)
        )

    def note(
        self, connection: psycopg.Connection, *, weight: int, where: sql.Composable | None = None
    ) -> None:
        """Note rows of the landing table: that they come (1), or that they go (-1)."""
        from psycopg import sql

        condition = where or sql.SQL("true")
        connection.execute(
            statement("INSERT INTO {} SELECT ", DELTA)
            + self._values()
            + statement(f", {weight} FROM {{}} WHERE ", self.landing)
            + condition
        )

    def apply(self, connection: psycopg.Connection) -> bool:
        """Bring the table in line with what was noted; return whether it had the rows that went."""
        self._sum_up(connection)
        self._merge(connection)
        row = connection.execute(
            statement(
                f"SELECT coalesce(bool_or({self._any_null()}), false), coalesce(bool_or({REMOVED}), false) FROM {{}}",
                GROUPS,
            )
        ).fetchone()
        has_null, has_removed = row if row is not None else (False, False)
        if not has_removed:
            return True
        kinds = (False, True) if has_null else (False,)
        return all(self._settle(connection, nulls=nulls) for nulls in kinds)

    def _sum_up(self, connection: psycopg.Connection) -> None:
        """Have a row for each group that has changed."""
        from psycopg import sql

        values = [
            value + statement(" AS {}", sql.Identifier(column))
            for column, value in self._written_columns().items()
        ]
        connection.execute(
            statement("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT ", GROUPS)
            + column_list(self.names)
            + sql.SQL(", ")
            + sql.SQL(", ").join(values)
            + statement(f", bool_or({WEIGHT} < 0) AS {REMOVED} FROM {{}} GROUP BY ", DELTA)
            + column_list(self.names)
        )

    def _merge(self, connection: psycopg.Connection) -> None:
        """Add to the groups that are there, and insert the others."""
        from psycopg import sql

        merged = [statement("{} = kept.{} + EXCLUDED.{}", *[sql.Identifier(ROWS)] * 3)] + [
            statement("{} = ", sql.Identifier(column)) + aggregate.merged(column)
            for aggregate in self.aggregates
            for column in aggregate.written_columns()
        ]
        columns = column_list((*self.names, *self._written_columns()))
        connection.execute(
            statement("INSERT INTO {} AS kept (", self.table)
            + columns
            + sql.SQL(") SELECT ")
            + columns
            + statement(" FROM {} ON CONFLICT (", GROUPS)
            + column_list(self.names)
            + sql.SQL(") DO UPDATE SET ")
            + sql.SQL(", ").join(merged)
        )

    def _settle(self, connection: psycopg.Connection, *, nulls: bool) -> bool:
        """Delete groups that have no row any more, and compute again what no value can be taken back from; False when
        rows were missing.

        Groups with a NULL are looked for apart from the others: an index does not find them by a comparison that
        takes NULL for a value.
        """
        from psycopg import sql

        touched = self._touched(nulls=nulls)
        rows = sql.Identifier(ROWS)
        missing = connection.execute(
            statement("SELECT 1 FROM {} AS kept, ", self.table)
            + touched
            + sql.SQL(" WHERE ")
            + self._same("kept", nulls=nulls)
            + statement(" AND kept.{} < 0 LIMIT 1", rows)
        ).fetchone()
        connection.execute(
            statement("DELETE FROM {} AS kept USING ", self.table)
            + touched
            + sql.SQL(" WHERE ")
            + self._same("kept", nulls=nulls)
            + statement(" AND kept.{} = 0", rows)
        )
        again = {
            column: value for aggregate in self.aggregates for column, value in aggregate.again().items()
        }
        if again:
            values = [value + statement(" AS {}", sql.Identifier(column)) for column, value in again.items()]
            groups = sql.SQL(", ").join(statement("touched.{}", sql.Identifier(name)) for name in self.names)
            connection.execute(
                statement("UPDATE {} AS kept SET ", self.table)
                + sql.SQL(", ").join(
                    statement("{} = touched.{}", sql.Identifier(column), sql.Identifier(column))
                    for column in again
                )
                + sql.SQL(" FROM (SELECT ")
                + groups
                + sql.SQL(", ")
                + sql.SQL(", ").join(values)
                + sql.SQL(" FROM (SELECT ")
                + self._values()
                + statement(" FROM {}) AS landed JOIN ", self.landing)
                + touched
                + sql.SQL(" ON ")
                + self._same("landed", nulls=nulls)
                + sql.SQL(" GROUP BY ")
                + groups
                + sql.SQL(") AS touched WHERE ")
                + self._same("kept", nulls=nulls)
            )
        return missing is None

    def _written_columns(self) -> dict[str, sql.Composable]:
        """The columns that are written, with their values for rows with weights."""
        from psycopg import sql

        columns: dict[str, sql.Composable] = {ROWS: sql.SQL(f"sum({WEIGHT})")}
        for aggregate in self.aggregates:
            columns |= aggregate.written_columns()
        return columns

    def _values(self) -> sql.Composed:
        """The columns of rows of the landing table that groups and aggregates are made of."""
        from psycopg import sql

        groups = [group.value() + statement(" AS {}", sql.Identifier(group.name)) for group in self.groups]
        values = [
            statement("{} AS {}", sql.Identifier(aggregate.source), sql.Identifier(aggregate.name))
            for aggregate in self.aggregates
            if aggregate.source is not None
        ]
        return sql.SQL(", ").join([*groups, *values])

    def _touched(self, *, nulls: bool) -> sql.Composed:
        """The groups that have lost a row, those with a NULL or those without."""
        from psycopg import sql

        condition = f"{'' if nulls else 'NOT '}({self._any_null()})"
        return (
            sql.SQL("(SELECT ")
            + column_list(self.names)
            + statement(f" FROM {{}} WHERE {REMOVED} AND {condition}) AS touched", GROUPS)
        )

    def _same(self, other: str, *, nulls: bool) -> sql.Composed:
        """A condition: a row of another table is of a touched group."""
        from psycopg import sql

        equal = "IS NOT DISTINCT FROM" if nulls else "="
        return sql.SQL(" AND ").join(
            statement(f"{other}.{{}} {equal} touched.{{}}", sql.Identifier(name), sql.Identifier(name))
            for name in self.names
        )

    def _any_null(self) -> str:
        """A condition: a column of the group is NULL."""
        quoted = [
            '"' + name.replace('"', '""').replace("{", "{{").replace("}", "}}") + '"' for name in self.names
        ]
        return " OR ".join(f"{name} IS NULL" for name in quoted)


def _field(columns: Mapping[str, Field], name: str) -> Field:
    if name not in columns:
        raise ConfigError(
            f"the rows have no column '{name}'",
            code="STREAM_OPTION_VALUE",
            hint=suggest(name, list(columns), what="column"),
        )
    return columns[name]


def _aggregate(name: str, result: AggregateColumn, columns: Mapping[str, Field]) -> StoredAggregate:
    if result.fn == "count":
        source = None if result.from_ is None else _field(columns, result.from_).name
        return StoredAggregate(name, "count", source, result.type or "bigint", exact=True)
    field = _field(columns, result.from_ or name)
    if result.fn in ("min", "max"):
        return StoredAggregate(name, result.fn, field.name, result.type or column_type(field), exact=False)
    family = field.type.partition("(")[0]
    if family not in (*EXACT, *FLOATING):
        raise ConfigError(
            f"{result.fn} of '{field.name}', which is {field.type}",
            code="STREAM_OPTION_VALUE",
            hint="sums and averages are those of numbers: cast it, or count it",
        )
    exact = family in EXACT
    kind = result.type or ("numeric" if exact else "double precision")
    return StoredAggregate(name, result.fn, field.name, kind, exact=exact)
